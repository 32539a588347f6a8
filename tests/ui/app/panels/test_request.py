"""The panel of one request."""

from textual.widgets import Input

from tests.ui.app.panels.scenes import PanelApp, drive, life, line_with, snap, text_of
from tests.ui.app.script import settle
from ui.app.panels.request import RequestPanel
from ui.view import snapshot as s

FOUND = s.RequestPanel("s95.t12", life(), ())
SEVERAL = s.RequestPanel("s9", None, ("s9.t1", "s9.t2", "s95.t12"))


def test_a_life_is_told_as_a_bar_in_words_and_by_its_passes():
    """Bar, legend, the words of why and the passes that looked at it, at 80x24."""
    text = drive(PanelApp(RequestPanel(), snapshot=snap(request=FOUND)))
    assert "Request  s95.t12" in text.splitlines()[0]
    assert "iiiiiiii" in text
    assert "╌╌╌╌╌╌╌╌" in text
    assert "behind input_tokens 40 s" in text
    assert line_with(text, "waited 51.0 s, of which").split()[-1] == "1,040"
    assert "+1 min 40 s" in text
    assert "+2 min 50 s" in text


def test_a_pass_opens():
    """Enter on a pass that looked at it asks for the pass."""
    app = PanelApp(RequestPanel(), snapshot=snap(request=FOUND))

    async def do(pilot):
        pilot.app.query_one("#looks").focus()
        await pilot.press("down", "enter")

    drive(app, do)
    assert app.asked == [("OpenPass", 1_049)]


def test_what_is_typed_is_searched_and_the_first_match_taken():
    """Each letter is searched for; Enter takes the first id that begins so."""
    app = PanelApp(RequestPanel(), snapshot=snap(request=s.RequestPanel("", None, ())))

    async def do(pilot):
        pilot.app.query_one("VerticalScroll").focus()
        await pilot.press("slash", "s", "9")
        app.show(snap(request=SEVERAL))
        await settle(pilot)
        shown = text_of(app.screen)
        assert all(each in shown for each in SEVERAL.matches)
        await pilot.press("enter")

    drive(app, do)
    assert app.asked == [("SearchRequest", "s"), ("SearchRequest", "s9"), ("SearchRequest", "s9.t1")]


def test_a_match_is_taken_from_the_list():
    """Down goes from the search into the list, where Enter takes an id."""
    app = PanelApp(RequestPanel(), snapshot=snap(request=SEVERAL))

    async def do(pilot):
        pilot.app.query_one("#matches").focus()
        await pilot.press("i")
        assert isinstance(app.focused, Input)
        await pilot.press("down", "down", "enter")
        app.show(snap(request=FOUND))
        await settle(pilot)
        assert app.focused.parent.id == "looks"

    drive(app, do)
    assert app.asked == [("SearchRequest", "s9.t2")]


def test_keys_are_the_screens_unless_a_search_was_wanted():
    """The search takes no focus of itself, and escape gives it back."""
    app = PanelApp(RequestPanel(), snapshot=snap(request=FOUND))

    async def do(pilot):
        assert not app.query_one(Input).focusable
        pilot.app.query_one("#looks").focus()
        await pilot.press("slash", "escape")
        assert app.focused.parent.id == "looks"
        assert not app.query_one(Input).focusable

    drive(app, do)


def test_a_search_from_elsewhere_stands_in_the_line():
    """A request that was opened in another panel is what the search says."""
    app = PanelApp(RequestPanel(), snapshot=snap(request=FOUND))

    async def do(_pilot):
        assert app.query_one(Input).value == "s95.t12"

    drive(app, do)
    assert app.asked == []


def test_what_is_not_found_is_said():
    """No such id, and the reader's own words where it has any."""
    text = drive(PanelApp(RequestPanel(), snapshot=snap(request=s.RequestPanel("zz", None, ()))))
    assert "no request begins with 'zz'" in text
    pruned = s.RequestPanel("a", None, (), problem="request 'a' was pruned on 2026-01-01; nothing is kept")
    assert "was pruned on 2026-01-01" in drive(PanelApp(RequestPanel(), snapshot=snap(request=pruned)))


def test_a_life_that_goes_on_after_the_moment_shown_says_so():
    """Looking back, the life is told whole, and that it is."""
    later = s.RequestPanel("s95.t12", life(), (), later=True)
    assert "goes on after the moment shown" in drive(PanelApp(RequestPanel(), snapshot=snap(request=later)))


def test_copies():
    """The raw record and the question can be copied; an odd id is quoted."""
    panel = RequestPanel()
    odd = s.RequestPanel("it's", life(request="it's"), ())

    async def do(_pilot):
        assert panel.raw() == '{"number": 95}'
        assert "q.id = 'it''s'" in panel.as_sql()

    drive(PanelApp(panel, snapshot=snap(request=odd)), do)
    assert RequestPanel().raw() is None

"""The table of panels: rows in place, cursor by key, columns that fit."""

from hypothesis import given, settings
from hypothesis import strategies as st
from textual.app import ComposeResult
from textual.content import Content

from tests.ui.app.panels.scenes import BareApp, drive, text_of
from tests.ui.app.script import settle
from ui.app.lines import Lines
from ui.app.panels.table import Column, KeyedTable, fitting

COLUMNS = (
    Column("name", "name", 8, grows=True),
    Column("count", "count", 6, right=True),
    Column("note", "note", 10, drop=1),
    Column("more", "more", 10, drop=2),
)


class TableApp(BareApp):
    """One table, of rows that are their own keys; `drawn` keeps which were drawn."""

    def __init__(self, *columns: Column) -> None:
        super().__init__()
        self.table = KeyedTable(columns or COLUMNS)
        self.drawn: list[str] = []
        self.chosen: list[int] = []

    def compose(self) -> ComposeResult:
        """The table alone."""
        yield self.table

    def fill(self, *names, style="", **counts):
        """Rows of these names; a keyword gives one another count."""

        def cells(name):
            self.drawn.append(name)
            count = str(counts.get(name, len(name)))
            return {
                "name": Content.styled(name, style),
                "count": Content(count),
                "note": Content("n"),
                "more": Content("m"),
            }

        self.table.fill(names, str, cells)

    def on_lines_chosen(self, event: Lines.Chosen) -> None:
        """Keep what was chosen."""
        self.chosen.append(event.index)


def test_columns_drop_in_their_order_and_those_that_grow_take_the_rest():
    """Columns go in the order they state until what is left fits, and no width is wasted."""
    wide, narrow, narrowest = (fitting(COLUMNS, width) for width in (60, 30, 17))
    assert [each.name for each in wide] == ["name", "count", "note", "more"]
    assert sum(each.width + each.gap for each in wide) - wide[-1].gap == 60
    assert [each.name for each in narrow] == ["name", "count", "more"]
    assert [each.name for each in narrowest] == ["name", "count"]
    both = fitting((Column("a", "", 3, grows=True), Column("b", "", 3, grows=True)), 13)
    assert [each.width for each in both] == [5, 6]


def test_a_column_that_wants_more_gets_it_of_what_is_left_over():
    """A wanted width comes before those that grow, costs no other column its place, and is no more than there is."""
    columns = (Column("id", "", 3), Column("why", "", 5, grows=True), Column("n", "", 4, drop=1))
    assert [each.width for each in fitting(columns, 16, {"id": 8})] == [3, 5, 4]
    assert [each.width for each in fitting(columns, 18, {"id": 8})] == [5, 5, 4]
    assert [each.width for each in fitting(columns, 26, {"id": 8})] == [8, 10, 4]


def test_the_cursor_stays_on_its_row_when_rows_move():
    """A row that comes in above does not move the cursor off what it was on, nor that row on the screen."""
    app = TableApp()

    async def do(pilot):
        app.fill(*"abcdefghijklmnop")
        await settle(pilot)
        app.table.go_to("i")
        await settle(pilot)
        before = (
            text_of(app.screen).splitlines().index(next(x for x in text_of(app.screen).splitlines() if x[0] == "i"))
        )
        app.fill(*"xyzabcdefghijklmnop")
        await settle(pilot)
        assert app.table.key_at == "i"
        assert app.table.place == 11
        assert text_of(app.screen).splitlines()[before][0] == "i"

    drive(app, do, size=(60, 6))


def test_the_cursor_stays_in_the_table_when_its_row_goes():
    """When the row under the cursor is gone, the cursor is on the last row there is, or nowhere."""
    app = TableApp()

    async def do(pilot):
        app.fill("a", "b", "c")
        await settle(pilot)
        app.table.go_to("c")
        app.fill("a")
        await settle(pilot)
        assert app.table.key_at == "a"
        app.fill()
        await settle(pilot)
        assert app.table.key_at is None

    drive(app, do)


def test_only_rows_in_view_are_drawn():
    """Of 500 rows only those in view cost anything."""
    app = TableApp()

    async def do(pilot):
        app.fill(*(f"r{each}" for each in range(500)))
        await settle(pilot)

    drive(app, do, size=(60, 11))
    assert set(app.drawn) == {f"r{each}" for each in range(10)}


def test_only_lines_that_changed_are_painted_again():
    """A refill that changes one cell, or its style alone, paints one line."""
    app = TableApp()
    painted = []

    async def do(pilot):
        app.fill("a", "b", "c")
        await settle(pilot)
        app.table.rows.refresh_line = painted.append
        app.table.rows.refresh = lambda *_, **__: painted.append("all")
        app.fill("a", "b", "c", b=9)
        assert painted == [1]
        app.fill("a", "b", "c", b=9)
        assert painted == [1]
        app.fill("a", "b", "c", b=9, style="bold")
        assert painted == [1, 0, 1, 2]

    drive(app, do)


def test_at_most_500_rows():
    """A table never holds more than 500 rows."""
    app = TableApp()

    async def do(pilot):
        app.fill(*(f"r{each}" for each in range(1_200)))
        await settle(pilot)
        assert app.table.rows.count == 500
        app.fill("a")
        await settle(pilot)
        assert app.table.rows.count == 1

    drive(app, do)


def test_numbers_stand_at_the_right_and_long_text_ends_in_an_ellipsis():
    """Cells are as wide as their column, whatever is in them, and the columns' names stand above them."""
    app = TableApp(Column("name", "name", 6), Column("count", "count", 6, right=True))

    async def do(pilot):
        app.fill("abcdefghij")
        await settle(pilot)

    text = drive(app, do, size=(20, 5))
    assert text.splitlines()[0] == "name     count"
    assert text.splitlines()[1] == "abcde…      10"


def test_another_width_shows_other_columns_and_keeps_the_cursor():
    """When the screen gets narrower the cursor stays on its row."""
    app = TableApp()

    async def do(pilot):
        app.fill("a", "b", "c")
        await settle(pilot)
        app.table.go_to("b")
        await pilot.resize_terminal(20, 10)
        await settle(pilot)
        assert app.table.key_at == "b"
        assert "note" not in text_of(app.table)

    drive(app, do, size=(60, 10))


def test_keys_move_the_cursor():
    """Arrows, pages and ends move within the rows there are."""
    app = TableApp()
    at = []

    async def do(pilot):
        app.fill(*(f"r{each}" for each in range(30)))
        app.table.focus()
        await settle(pilot)
        for key in ("down", "pagedown", "end", "down", "up", "pageup", "home", "up"):
            await pilot.press(key)
            at.append(app.table.place)

    drive(app, do, size=(60, 11))
    assert at == [1, 11, 29, 29, 28, 18, 0, 0]


def test_the_click_that_gives_the_focus_chooses_nothing():
    """A row is chosen by a click on the cursor in a table that was already in use."""
    app = TableApp()

    async def do(pilot):
        app.fill("a", "b")
        await settle(pilot)
        app.set_focus(None)
        await pilot.click("Rows", offset=(1, 0))
        assert app.chosen == []
        await pilot.click("Rows", offset=(1, 0))
        assert app.chosen == [0]
        await pilot.click("Rows", offset=(1, 1))
        assert app.table.place == 1

    drive(app, do)
    assert app.chosen == [0]


@settings(max_examples=15, deadline=None)
@given(st.lists(st.lists(st.sampled_from("abcdefghijklmnopqrstuvwxyz"), unique=True, max_size=26), max_size=8))
def test_any_refill_shows_the_rows_of_the_last_one(fills):
    """Whatever was shown before, the table shows exactly the rows of the last fill, in their order."""
    app = TableApp()

    async def do(pilot):
        for names in fills:
            app.fill(*names)
            await pilot.pause()

    shown = [line[0] for line in drive(app, do, size=(60, 30)).splitlines()[1:] if line]
    assert shown == (fills[-1] if fills else [])

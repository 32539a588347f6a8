"""The table of panels: rows in place, cursor by key, columns that fit."""

from hypothesis import given, settings
from hypothesis import strategies as st
from textual.app import App, ComposeResult
from textual.content import Content

from tests.ui.app.panels.scenes import drive, settle, text_of
from ui.app.colours import theme_name, themes
from ui.app.panels.table import Column, KeyedTable, Row, _fitting

COLUMNS = (
    Column("name", "name", 8, grows=True),
    Column("count", "count", 6, right=True),
    Column("note", "note", 10, drop=1),
    Column("more", "more", 10, drop=2),
)


class TableApp(App[None]):
    """One table."""

    def __init__(self, *columns: Column) -> None:
        super().__init__()
        self.table = KeyedTable(columns or COLUMNS)
        for theme in themes():
            self.register_theme(theme)
        self.theme = theme_name("dark")

    def compose(self) -> ComposeResult:
        """The table alone."""
        yield self.table


def rows(*names):
    """Rows of these names, each with its length as the count."""
    return [
        Row(name, {key: Content(value) for key, value in zip(("name", "count", "note", "more"), values, strict=True)})
        for name in names
        for values in [(name, str(len(name)), "n", "m")]
    ]


def test_columns_drop_in_their_order_and_the_one_that_grows_takes_the_rest():
    """Columns go in the order they state until what is left fits, and no width is wasted."""
    wide, narrow, narrowest = (_fitting(COLUMNS, width) for width in (60, 30, 17))
    assert [each.name for each in wide] == ["name", "count", "note", "more"]
    assert sum(each.width + each.gap for each in wide) - wide[-1].gap == 60
    assert [each.name for each in narrow] == ["name", "count", "more"]
    assert [each.name for each in narrowest] == ["name", "count"]


def test_the_cursor_stays_on_its_row_when_rows_move():
    """A row that comes in above does not move the cursor off what it was on."""
    app = TableApp()

    async def do(pilot):
        app.table.fill(rows("a", "b", "c"))
        await settle(pilot)
        app.table.go_to("b")
        app.table.fill(rows("x", "y", "a", "b", "c"))
        await settle(pilot)
        assert app.table.key_at == "b"
        assert app.table.cursor_row == 3

    drive(app, do)


def test_the_cursor_stays_in_the_table_when_its_row_goes():
    """When the row under the cursor is gone, the cursor is on the last row there is, or nowhere."""
    app = TableApp()

    async def do(pilot):
        app.table.fill(rows("a", "b", "c"))
        await settle(pilot)
        app.table.go_to("c")
        app.table.fill(rows("a"))
        await settle(pilot)
        assert app.table.key_at == "a"
        app.table.fill([])
        await settle(pilot)
        assert app.table.key_at is None

    drive(app, do)


def test_only_cells_that_changed_are_updated():
    """A refill that changes one cell updates one cell."""
    app = TableApp()
    updated = []

    async def do(pilot):
        app.table.fill(rows("a", "b", "c"))
        await settle(pilot)
        update = app.table.update_cell
        app.table.update_cell = lambda *cell, **more: (updated.append(cell[:2]), update(*cell, **more))
        changed = rows("a", "b", "c")
        changed[1] = Row("b", {**changed[1].cells, "count": Content("9")})
        app.table.fill(changed)
        await settle(pilot)

    drive(app, do)
    assert updated == [("1", "count")]


def test_a_cell_of_another_style_alone_is_updated():
    """The same text in another colour is another cell."""
    app = TableApp()
    updated = []

    async def do(pilot):
        app.table.fill(rows("a"))
        await settle(pilot)
        app.table.update_cell = lambda *cell, **_: updated.append(cell[1])
        app.table.fill([Row("a", {**rows("a")[0].cells, "name": Content.styled("a", "bold")})])
        await settle(pilot)

    drive(app, do)
    assert updated == ["name"]


def test_at_most_500_rows():
    """A table never holds more than 500 rows."""
    app = TableApp()

    async def do(pilot):
        app.table.fill(rows(*(f"r{each}" for each in range(1_200))))
        await settle(pilot)
        assert app.table.row_count == 500
        app.table.fill(rows("a"))
        await settle(pilot)
        assert app.table.row_count == 1

    drive(app, do)


def test_numbers_stand_at_the_right_and_long_text_ends_in_an_ellipsis():
    """Cells are as wide as their column, whatever is in them."""
    app = TableApp(Column("name", "name", 6), Column("count", "count", 6, right=True))

    async def do(pilot):
        app.table.fill([Row("a", {"name": Content("abcdefghij"), "count": Content("12")})])
        await settle(pilot)

    text = drive(app, do, size=(20, 5))
    assert text.splitlines()[0] == "name     count"
    assert text.splitlines()[1] == "abcde…      12"


def test_another_width_shows_other_columns_and_keeps_the_cursor():
    """When the screen gets narrower the cursor stays on its row."""
    app = TableApp()

    async def do(pilot):
        app.table.fill(rows("a", "b", "c"))
        await settle(pilot)
        app.table.go_to("b")
        await pilot.resize_terminal(20, 10)
        await settle(pilot)
        assert app.table.key_at == "b"
        assert "note" not in text_of(app.table)

    drive(app, do, size=(60, 10))


@settings(max_examples=15, deadline=None)
@given(st.lists(st.lists(st.sampled_from("abcdefghijklmnopqrstuvwxyz"), unique=True, max_size=26), max_size=8))
def test_any_refill_shows_the_rows_of_the_last_one(fills):
    """Whatever was shown before, the table shows exactly the rows of the last fill, in their order."""
    app = TableApp()

    async def do(pilot):
        for names in fills:
            app.table.fill(rows(*names))
            await pilot.pause()
        shown = [app.table.get_row_at(each)[0].plain.strip() for each in range(app.table.row_count)]
        assert shown == (fills[-1] if fills else [])

    drive(app, do, size=(60, 30))

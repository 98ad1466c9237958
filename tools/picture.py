"""Shapes of an SVG picture, in the look of the docs, light and dark."""

STYLE = """text{font-family:"Helvetica Neue",Arial,"DejaVu Sans",sans-serif;fill:#1f2933;font-size:13px}
.card{fill:#fcfcfa;stroke:#d9dcd6}.quiet{fill:#5f6b76;font-size:12px}.head{font-weight:bold;font-size:14px}
.band{fill:#f1f2ee;stroke:none}.box{fill:#fcfcfa;stroke:#8a949c}.line{fill:none;stroke:#8a949c;stroke-width:1.2}
.axis{stroke:#c9cfcc;stroke-dasharray:3 4}.wait{fill:none;stroke:#8a949c;stroke-dasharray:3 3}
.a,.route{fill:#1f6fa8}.b,.send{fill:#c2571a}.c,.receive{fill:#3a8a4d}.both{fill:#8a6d1f}
.sa{stroke:#1f6fa8}.sb{stroke:#c2571a}.sc{stroke:#3a8a4d}.wire{fill:none;stroke-width:3}.copy{fill:none;stroke-width:1.4}
.on{fill:#ffffff}
@media (prefers-color-scheme:dark){text{fill:#e4e8ea}.card{fill:#12181d;stroke:#303a42}.quiet{fill:#9aa6af}
.band{fill:#1a2228}.box{fill:#12181d;stroke:#6b7780}.axis{stroke:#3a454d}.on{fill:#ffffff}}"""


class Picture:
    """Shapes, one after another, on a card of that size."""

    def __init__(self, width, height, title):
        self.size, self.title, self.shapes = (width, height), title, []

    def rect(self, look, x, y, width, height, round_by=3):
        self.shapes.append(f'<rect class="{look}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{round_by}"/>')

    def text(self, x, y, words, look="", anchor="start"):
        words = words.replace("&", "&amp;").replace("<", "&lt;")
        self.shapes.append(f'<text class="{look}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{words}</text>')

    def line(self, look, x1, y1, x2, y2):
        self.shapes.append(f'<path class="{look}" d="M{x1:g} {y1:g}L{x2:g} {y2:g}"/>')

    def curve(self, look, x1, y1, x2, y2):
        middle = (x1 + x2) / 2
        self.shapes.append(f'<path class="{look}" d="M{x1:g} {y1:g}C{middle:g} {y1:g} {middle:g} {y2:g} {x2:g} {y2:g}"/>')

    def arrow(self, x1, y1, x2, y2):
        """Downwards or upwards, with a head."""
        head = 6 if y2 > y1 else -6
        self.line("line", x1, y1, x2, y2 - head)
        self.shapes.append(f'<path class="line" style="fill:#8a949c" d="M{x2 - 4:g} {y2 - head:g}L{x2 + 4:g} {y2 - head:g}L{x2:g} {y2:g}Z"/>')

    def label(self, look, x, y, width, height, words):
        """A filled box with words in it."""
        self.rect(look, x, y, width, height)
        self.text(x + width / 2, y + height / 2 + 4.5, words, "on", "middle")

    def svg(self):
        width, height = self.size
        head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">\n'
                f"<title>{self.title}</title>\n<style>\n{STYLE}\n</style>\n"
                f'<rect class="card" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>\n')
        return head + "\n".join(self.shapes) + "\n</svg>\n"

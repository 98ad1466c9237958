#!/usr/bin/env python3
"""The pictures of docs/images that draw_docs.py draws are those that are checked in, byte for byte."""

import pathlib
import re
import unittest
import xml.etree.ElementTree

import draw_docs

IMAGES = pathlib.Path(__file__).resolve().parent.parent / "docs" / "images"


class Pictures(unittest.TestCase):
    def test_are_those_of_the_pages(self):
        for name, draw in draw_docs.PICTURES.items():
            self.assertEqual((IMAGES / name).read_text(encoding="utf-8"), draw().svg(),
                             f"{name} differs: run tools/draw_docs.py docs/images")

    def test_are_whole_and_within_their_cards(self):
        for name, draw in draw_docs.PICTURES.items():
            root = xml.etree.ElementTree.fromstring(draw().svg())
            width, height = (float(root.get(side)) for side in ("width", "height"))
            for shape in root.iter():
                if shape.get("x") is not None:
                    self.assertTrue(0 <= float(shape.get("x")) <= width and 0 <= float(shape.get("y")) <= height, name)

    def test_every_row_and_message_of_the_exchange_is_drawn_once(self):
        picture = draw_docs.draw_exchange().svg()
        self.assertEqual(picture.count(", k = "), sum(len(experts) for experts in draw_docs.CHOICES.values()))
        messages = sum(len(draw_docs.ranks_of(token)) for token in draw_docs.CHOICES)
        self.assertEqual(picture.count('class="wire '), 2 * messages)

    def test_the_roles_of_a_grid_are_its_blocks(self):
        for title, said, roles in draw_docs.grids():
            self.assertEqual(int(re.search(r"\d+", said).group()), sum(blocks for _, blocks in roles), title)
            self.assertTrue(all(blocks > 0 for _, blocks in roles), title)

    def test_no_room_lies_below_what_it_includes(self):
        storeys = draw_docs.storeys_of([("tool", None), ("src/cpu", {"include"}), ("include", set())])
        self.assertEqual(storeys, {"include": 0, "src/cpu": 1, "tool": 2})
        with self.assertRaises(SystemExit):
            draw_docs.storeys_of([("src/cpu", {"src/net"}), ("src/net", {"src/cpu"})])


if __name__ == "__main__":
    unittest.main()

"""The check of the project's files."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import check_files  # noqa: E402


class CheckFiles(unittest.TestCase):
    def lines(self, text):
        return [number for number, _ in check_files.check_text(text)]

    def test_length(self):
        self.assertEqual(self.lines("x\n" * check_files.MAX_LINES), [])
        self.assertEqual(self.lines("x\n" * (check_files.MAX_LINES + 1)), [check_files.MAX_LINES + 1])

    def test_machine_paths(self):
        for folder in ("work", "root", "home", "tmp"):
            self.assertEqual(self.lines(f'a\nopen("/{folder}/x");\n'), [2], folder)
            self.assertEqual(self.lines(f"cd /{folder}\n"), [1], folder)
        for good in ("build/work/x", "$PWD/tmp/x", "and/work/or", "./tmp/", "/tmpfs", "/workspace", "~/root/"):
            self.assertEqual(self.lines(good), [], good)

    def test_leftovers(self):
        for word in ("TO" + "DO", "FIX" + "ME", "XX" + "X"):
            self.assertEqual(self.lines(f"// {word}: later\n"), [1], word)
        self.assertEqual(self.lines("todolist, XXXL\n"), [])

    def test_which_files(self):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            wanted = ["src/a.cc", "CMakeLists.txt", ".ci/run", "docs/a.md"]
            for name in wanted + ["build/a.cc", "tests/data/a.json", "x/target/b.rs", "image.png", ".venv/a.py"]:
                path = root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("")
            found = [path.relative_to(root).as_posix() for path in check_files.checked_files(root)]
            self.assertEqual(sorted(found), sorted(wanted))

    def test_links(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "docs").mkdir()
            (Path(folder) / "docs" / "a.md").write_text(
                "[up](../b.md#part) [here](#x) [web](https://example.org/c.md)\n[gone](c.md) [folder](../docs)\n")
            (Path(folder) / "b.md").write_text("")
            found = check_files.check_tree(Path(folder))
            self.assertEqual(found, ["docs/a.md: links to c.md, which is not there"])

    def test_tree_reports_file_and_line(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "a.md").write_text("fine\nTO" + "DO\n")
            (Path(folder) / "b.txt").write_bytes(b"\xff")
            found = check_files.check_tree(Path(folder))
            self.assertEqual(len(found), 2)
            self.assertTrue(found[0].startswith("a.md:2: "))
            self.assertTrue(found[1].startswith("b.txt: not UTF-8"))


if __name__ == "__main__":
    unittest.main()

"""The layering check, on made-up trees."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import check_layers  # noqa: E402


class CheckLayers(unittest.TestCase):
    def check(self, files):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                path = Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return check_layers.check_tree(Path(folder))

    def test_downward_and_own_includes_pass(self):
        self.assertEqual(
            self.check(
                {
                    "src/base/error.h": "#include <string>\n",
                    "src/contract/match.cc": '#include "contract/match.h"\n#include "base/error.h"\n',
                    "src/engine/a/b.cc": '  #  include "library/load.h"\n#include <nlohmann/json.hpp>\n',
                    "src/package/tokenizer.cc": '#include "dovetail_rust.h"\n',
                    "tests/base/x_test.cc": '#include "cli/app.h"\n',
                }
            ),
            [],
        )

    def test_every_upward_arrow_is_refused(self):
        layers = check_layers.LAYERS
        for low in range(len(layers)):
            for high in range(low + 1, len(layers)):
                found = self.check({f"src/{layers[low]}/x.h": f'#include "{layers[high]}/y.h"\n'})
                self.assertEqual(len(found), 1, (layers[low], layers[high]))
                self.assertIn(f"src/{layers[low]}/x.h:1:", found[0])
                self.assertIn(layers[high], found[0])

    def test_all_violations_are_listed(self):
        found = self.check(
            {
                "src/base/a.cc": '#include "cli/app.h"\n#include <vector>\n#include <engine/chat.h>\n',
                "src/ops/b.h": '#include "kernels.h"\n',
                "src/cli/c.cc": '#include "dovetail_rust.h"\n',
            }
        )
        self.assertEqual([line.split(": ")[0] for line in found],
                         ["src/base/a.cc:1", "src/base/a.cc:3", "src/cli/c.cc:1", "src/ops/b.h:1"])

    def test_unknown_folders_and_loose_files_are_refused(self):
        found = self.check({"src/util/a.h": "", "src/main.cc": ""})
        self.assertEqual(len(found), 2)
        self.assertIn("src/main.cc", found[0])
        self.assertIn("src/util", found[1])

    def test_family_names_stay_in_their_folders(self):
        self.assertEqual(self.check({"src/models/gemma4.h": "// Gemma 4\n"}), [])
        found = self.check({"src/engine/chat.cc": 'if (name == "gemma4") {}\n'})
        self.assertEqual(len(found), 1)
        self.assertIn("src/engine/chat.cc:1", found[0])


if __name__ == "__main__":
    unittest.main()

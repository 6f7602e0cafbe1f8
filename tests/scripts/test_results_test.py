"""Counting of test results."""

import json
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import test_results  # noqa: E402


def case(name, result="COMPLETED", failed=False, **properties):
    return {"name": name, "status": "RUN", "result": result, **({"failures": [{}]} if failed else {}), **properties}


class TestResults(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.results = Path(folder.name)

    def write_ctest(self, *entries):
        body = "".join(
            f'<testcase name="{name}" status="{status}"><system-out>{output}</system-out></testcase>'
            for name, status, output in entries
        )
        (self.results / "ctest.xml").write_text(f"<testsuite>{body}</testsuite>")

    def write_gtest(self, program, *cases):
        report = {"testsuites": [{"name": "Suite", "testsuite": list(cases)}]}
        (self.results / f"{program}.json").write_text(json.dumps(report))

    def count(self):
        return tuple(test_results.count(self.results).values())

    def test_cases_of_a_program(self):
        self.write_ctest(("a_test", "fail", ""))
        self.write_gtest("a_test", case("A"), case("B", failed=True), case("C", result="SKIPPED"),
                         {"name": "D", "status": "NOTRUN", "result": "SUPPRESSED"})
        self.assertEqual(self.count(), (1, 1, 1))

    def test_crash_without_report(self):
        self.write_ctest(("a_test", "fail", "Segmentation fault"))
        self.assertEqual(self.count(), (0, 1, 0))

    def test_truncated_report(self):
        self.write_ctest(("a_test", "fail", ""))
        (self.results / "a_test.json").write_text('{"testsuites": [')
        self.assertEqual(self.count(), (0, 1, 0))

    def test_failure_after_the_last_case(self):
        self.write_ctest(("a_test", "fail", "LeakSanitizer: detected memory leaks"))
        self.write_gtest("a_test", case("A"), case("B"))
        self.assertEqual(self.count(), (2, 1, 0))

    def test_python_and_plain_entries(self):
        self.write_ctest(
            ("python", "fail", "noise\nRan 7 tests in 0.1s\n\nFAILED (failures=1, errors=1, skipped=2)"),
            ("python_ok", "run", "Ran 1 test in 0.1s\n\nOK"),
            ("plain", "run", ""),
            ("not_built", "notrun", ""),
            ("off", "disabled", ""),
        )
        self.assertEqual(self.count(), (3 + 1 + 1, 2 + 1, 2 + 1))

    def test_instruction_sets(self):
        self.write_gtest("a_test", case("A", instruction_set="avx2"), case("B", "SKIPPED", instruction_set="avx512"),
                         case("C", "SKIPPED", instruction_set="avx2"), case("D"))
        self.assertEqual(test_results.instruction_sets([self.results]), {"avx2": True, "avx512": False})


if __name__ == "__main__":
    unittest.main()

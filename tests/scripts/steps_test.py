"""The shell functions that run the steps of the scripts."""

import subprocess
import tempfile
import unittest
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


class Steps(unittest.TestCase):
    def run_script(self, body):
        with tempfile.TemporaryDirectory() as folder:
            script = f'set -euo pipefail; source "{SCRIPTS}/steps.sh"; steps_begin "{folder}/logs" 2; {body}'
            done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=30)
            logs = {path.name: path.read_text() for path in sorted((Path(folder) / "logs").iterdir())}
            return done, logs

    def test_steps_are_numbered_timed_and_logged(self):
        done, logs = self.run_script('step "Say it" echo hello; step "Again (x)" echo there; cat "$steps_log"')
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(
            done.stdout,
            r"\A\[1/2\] Say it\n +done in \d+\.\d s\n\[2/2\] Again \(x\)\n +done in \d+\.\d s\nthere\n\Z")
        self.assertEqual(logs, {"01-say-it.log": "hello\n", "02-again-x-.log": "there\n"})

    def test_a_failing_step_ends_the_script_and_shows_its_log(self):
        done, _ = self.run_script('step "Break" bash -c "echo broken pipe >&2; exit 7"; echo not reached')
        self.assertEqual(done.returncode, 1)
        self.assertIn("exit code 7", done.stdout)
        self.assertIn("| broken pipe", done.stdout)
        self.assertNotIn("not reached", done.stdout)

    def test_try_step_goes_on(self):
        done, _ = self.run_script('try_step "Break" false || echo "code $?"')
        self.assertEqual(done.returncode, 0)
        self.assertIn("code 1", done.stdout)

    def test_a_missing_command_is_a_failure(self):
        done, _ = self.run_script('step "Run" no-such-command-here')
        self.assertEqual(done.returncode, 1)
        self.assertIn("exit code 127", done.stdout)

    def test_time(self):
        done, _ = self.run_script(
            'for s in 0 1234567 59999999 60000000 3725000000; do steps_now() { echo $s; }; steps_since 0; done')
        self.assertEqual(done.stdout.split("\n")[:5], ["0.0 s", "1.2 s", "59.9 s", "1 min 0 s", "62 min 5 s"])


if __name__ == "__main__":
    unittest.main()

"""A few faults at each site, named rightly; `make campaign` has many."""

from absl.testing import absltest
from absl.testing import parameterized
from tests import guard_campaign
from tests import python_process

_MODES, _KINDS = guard_campaign.MODES, guard_campaign.KINDS


class GuardCampaignTest(parameterized.TestCase):

  @parameterized.parameters("local", "client2")
  def test_faults_are_named(self, site):
    cases = [guard_campaign.Case(i, site, _MODES[i % len(_MODES)], kind)
             for i, kind in enumerate(_KINDS)]
    self.assertEqual(guard_campaign.run(site, cases),
                     {case.number: [] for case in cases})

  @parameterized.parameters(("function", "nan"), ("steps", "weight"))
  def test_faults_are_named_by_all_programs(self, mode, kind):
    case = guard_campaign.Case(7, "spmd2", mode, kind)
    self.assertEqual(guard_campaign.run("spmd2", [case]), {7: []})

  def test_no_alarm_in_clean_steps(self):
    done = python_process.run("-m", "tests.guard_clean", "50")
    self.assertEqual(done.returncode, 0, done.stderr[-2000:])
    self.assertNotIn("on_nonfinite", done.stderr)

  def test_cases_are_of_all_kinds(self):
    cases = guard_campaign.cases(300, 0)
    self.assertLen({case.number for case in cases}, 300)
    for field, values in (("site", guard_campaign.SITES), ("mode", _MODES),
                          ("kind", _KINDS)):
      self.assertEqual({getattr(case, field) for case in cases}, set(values))


if __name__ == "__main__":
  absltest.main()

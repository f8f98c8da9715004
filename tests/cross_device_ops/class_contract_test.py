"""Holds the three classes to what every cross-device ops must do."""

from absl.testing import absltest
from tests import cross_device_ops_contract as contract

import tf_cdops


class AllReduceCrossDeviceOpsContractTest(contract.Contract):

  def make(self):
    return tf_cdops.AllReduceCrossDeviceOps("xring")


class NcclAllReduceContractTest(contract.Contract):

  def make(self):
    return tf_cdops.NcclAllReduce()


class MultiWorkerAllReduceContractTest(contract.Contract):

  def make(self):
    return tf_cdops.MultiWorkerAllReduce()


if __name__ == "__main__":
  absltest.main()

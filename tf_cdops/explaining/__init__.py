"""What a spec will do and cost, said without any device."""

from tf_cdops.explaining.explanation import Explanation
from tf_cdops.explaining.explanation import explain

__all__ = ["Explanation", "explain"]

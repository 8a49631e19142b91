"""Equal work: a client's command as another client's, or a reason why there is none."""

from truth.convert.commands import PROGRAMS, Conversion, convert

__all__ = ["PROGRAMS", "Conversion", "convert"]

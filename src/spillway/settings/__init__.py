"""The settings of a query, frozen and checked when they are made."""

from spillway.settings.adapt import Adapt as Adapt
from spillway.settings.checks import parse_bytes as parse_bytes
from spillway.settings.choices import ADJUSTMENTS as ADJUSTMENTS
from spillway.settings.choices import AGGRESSIVE as AGGRESSIVE
from spillway.settings.choices import AUTO as AUTO
from spillway.settings.choices import DISTRIBUTIONS as DISTRIBUTIONS
from spillway.settings.choices import FIXED as FIXED
from spillway.settings.choices import MOVES as MOVES
from spillway.settings.choices import MSLB as MSLB
from spillway.settings.choices import PASSIVE as PASSIVE
from spillway.settings.choices import PTLB as PTLB
from spillway.settings.choices import RINGS as RINGS
from spillway.settings.choices import SPILL_MODES as SPILL_MODES
from spillway.settings.choices import STRATEGIES as STRATEGIES
from spillway.settings.choices import VICTIMS as VICTIMS

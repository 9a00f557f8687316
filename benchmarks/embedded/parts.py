"""The parts that are measured clip by clip, by the names that ``--only`` takes."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.embedded.bench import Part
from benchmarks.embedded.classifier import CLASSIFIER
from benchmarks.embedded.diversity import DIVERSITY, SEEDS
from benchmarks.embedded.fidelity import TABLE
from benchmarks.embedded.mujoco_scenes import MUJOCO
from benchmarks.embedded.prompts import PROMPTS
from benchmarks.embedded.regions import REGIONS_PART
from benchmarks.embedded.sharpness import SHARPNESS
from benchmarks.embedded.weight_maps import MASK

PARTS: Mapping[str, Part] = {
    "table": TABLE,
    "sharpness": SHARPNESS,
    "classifier": CLASSIFIER,
    "prompts": PROMPTS,
    "diversity": DIVERSITY,
    "seeds": SEEDS,
    "regions": REGIONS_PART,
    "mask": MASK,
    "mujoco": MUJOCO,
}

"""The border to Hydra: overrides and YAML files in, typed settings out.

The rest of the package never sees an OmegaConf node. Whatever Hydra has to complain about leaves
here as one line that says what to type instead.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from cosmos_transfer.config import (
    ControlSettings,
    GenerateSettings,
    LookSettings,
    ModelSettings,
    OutputSettings,
)
from cosmos_transfer.errors import ConfigError, explain

Settings = TypeVar("Settings")

CONFIG_DIR = Path(__file__).resolve().parent / "configs"

# Schema of each config group, and of each command.
GROUP_SCHEMAS: dict[str, type] = {
    "control": ControlSettings,
    "look": LookSettings,
    "model": ModelSettings,
    "output": OutputSettings,
}
COMMAND_SCHEMAS: dict[str, type] = {"generate": GenerateSettings}

# Words people bring along from other tools, and ours.
ALIASES = {"controls.blur": "controls.vis"}

# Keys whose value is free text, with the key that reads the same from a file.
FILE_KEYS = {"prompt": "prompt_file", "negative_prompt": "negative_prompt_file"}


def compose(command: str, overrides: Sequence[str], schema: type[Settings]) -> Settings:
    """The settings of a command, from its YAML file, its groups and the overrides.

    Raises:
        ConfigError: An override that does not parse, names no known key, or has a value of
            another type; a list of alternatives where one value is meant.
    """
    import hydra
    from omegaconf import OmegaConf

    cleaned = [_rename(each) for each in overrides]
    _refuse_unknown_keys(cleaned, schema)
    texts = text_keys(schema)
    cleaned = [read_override(each, texts) for each in cleaned]
    with _composing():
        config = hydra.compose(config_name=command, overrides=cleaned)
        settings = OmegaConf.to_object(config)
    if not isinstance(settings, schema):
        raise TypeError(f"{command} composed to {type(settings).__name__}")
    return settings


def sweep_points(overrides: Sequence[str]) -> list[list[str]]:
    """The overrides of every point of a sweep, in the order in which Hydra numbers them.

    Args:
        overrides: Some of them with several values: ``seed=1,2``, ``seed=range(8)``.

    Raises:
        ConfigError: An override that does not parse, or a sweep that is no list of values.
    """
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
    from hydra.core.override_parser.overrides_parser import OverridesParser

    with _translated():
        parsed = OverridesParser.create().parse_overrides([_rename(each) for each in overrides])
        (points,) = BasicSweeper.split_arguments(parsed, max_batch_size=None)
    return points


def launch(
    command: str,
    overrides: Sequence[str],
    launcher: Sequence[str],
    task: Callable[[Any, Path], Any],
    *,
    schema: type,
    folder: Path,
) -> list[Any]:
    """Run a task at every point of a sweep through one of Hydra's launchers.

    Args:
        command: Whose settings are composed.
        overrides: Some of them with several values.
        launcher: Overrides of Hydra's own, such as ``hydra/launcher=slurm``.
        task: Told the settings and the folder of a point; must be fit for another process.
        schema: The command's settings.
        folder: Point n gets the folder n in it.

    Raises:
        ConfigError: What :func:`compose` refuses; a launcher that is not there or not installed.
    """
    from hydra.core.global_hydra import GlobalHydra

    cleaned = [_rename(each) for each in overrides]
    _refuse_unknown_keys(cleaned, schema)

    own = [
        *launcher,
        f"hydra.sweep.dir={_in_quotes(str(folder))}",
        "hydra.sweep.subdir=${hydra.job.num}",
        "hydra/job_logging=none",
        "hydra/hydra_logging=none",
    ]
    with _composing("cosmos-transfer"):
        hydra = GlobalHydra.instance().hydra
        if hydra is None:
            raise RuntimeError("Hydra was initialised a moment ago")
        batches = hydra.multirun(
            config_name=command,
            task_function=partial(_at_point, task),
            overrides=[*cleaned, *own],
            with_log_configuration=False,
        )
        return [returned.return_value for batch in batches for returned in batch]


def _at_point(task: Callable[[Any, Path], Any], config: Any) -> Any:
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import OmegaConf

    return task(OmegaConf.to_object(config), Path(HydraConfig.get().runtime.output_dir))


@contextmanager
def _composing(job: str = "app") -> Iterator[None]:
    """Within, Hydra knows our files and classes; its complaints leave in our words."""
    import hydra
    from hydra.core.config_store import ConfigStore

    store = ConfigStore.instance()
    for group, node in GROUP_SCHEMAS.items():
        store.store(group=group, name="schema", node=node)
    for name, node in COMMAND_SCHEMAS.items():
        store.store(name=f"{name}_schema", node=node)
    with (
        _translated(),
        hydra.initialize_config_dir(config_dir=str(CONFIG_DIR), version_base=None, job_name=job),
    ):
        yield


@contextmanager
def _translated() -> Iterator[None]:
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    try:
        yield
    except ConfigError:
        raise
    except (HydraException, OmegaConfBaseException) as error:
        # __post_init__ of a settings class speaks for itself; OmegaConf only wraps it.
        if isinstance(error.__cause__, ConfigError):
            raise error.__cause__ from error
        raise ConfigError(_explain_hydra(error)) from error


def read_override(override: str, texts: frozenset[str] = frozenset()) -> str:
    """The override for Hydra; a text that looks like a number or a flag stays a text.

    Args:
        override: ``key=value`` as typed.
        texts: Keys whose value is text, whatever it looks like.

    Raises:
        ConfigError: Where Hydra's grammar takes the value as something else than one value; shows
            the quoted form to type instead.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    key, _, value = override.partition("=")
    name = key.lstrip("+")
    try:
        parsed = OverridesParser.create().parse_overrides([override])[0]
    except HydraException:
        problem = "a value with characters that have a meaning of their own"
    else:
        parsed_value = parsed.value()
        if parsed.is_sweep_override():
            problem = "a list of alternatives"
        elif name in texts and isinstance(parsed_value, list | dict):
            problem = f"a {'list' if isinstance(parsed_value, list) else 'table'}"
        elif name in texts and isinstance(parsed_value, int | float):
            return f"{key}={_in_quotes(value.strip())}"
        elif name in texts and re.search(r"(?<!\\)(\\\\)*\$\{", value):
            problem = "a reference to another setting (${...})"
        else:
            return override
    do = "Give one value."
    if name in texts or "." in name or value.strip()[:1] not in "0123456789-[{":
        do = f"Quote it: {quoted_form(key, value)}"
        if name in FILE_KEYS:
            do += f", or put the text into a file: {FILE_KEYS[name]}=FILE"
        do += "."
    raise ConfigError(explain(name, expected="one value", got=problem, do=do))


def quoted_form(key: str, value: str) -> str:
    """How to type ``key=value`` in a shell so that Hydra takes the value as it stands."""
    return shlex.quote(f"{key}={_in_quotes(value)}")


def _in_quotes(value: str) -> str:
    """The value between double quotes, so that Hydra's grammar gives it back unchanged."""
    doubled = re.sub(r"(\\+)(?=\"|$)", r"\1\1", value)
    return '"' + doubled.replace('"', '\\"').replace("${", "\\${") + '"'


def text_keys(schema: type) -> frozenset[str]:
    """The dotted keys of a settings class that hold text."""
    hints = get_type_hints(schema)
    found: set[str] = set()
    for each in fields(schema):
        inner = hints[each.name]
        if is_dataclass(inner) and isinstance(inner, type):
            found |= {f"{each.name}.{key}" for key in text_keys(inner)}
        elif inner is str or inner == (str | None):
            found.add(each.name)
    return frozenset(found)


def given_keys(overrides: Sequence[str]) -> frozenset[str]:
    """The keys that the command line sets, without ``+`` and groups' packages."""
    return frozenset(each.partition("=")[0].lstrip("+~").partition("@")[0] for each in overrides)


def to_yaml(settings: object) -> str:
    """The settings as YAML, complete, in the order of their definition."""
    from omegaconf import OmegaConf

    return OmegaConf.to_yaml(OmegaConf.structured(settings))


def _rename(override: str) -> str:
    key, equals, value = override.partition("=")
    for alias, ours in ALIASES.items():
        if key == alias or key.startswith(f"{alias}."):
            key = ours + key[len(alias) :]
    return f"{key}{equals}{value}"


def _known_keys(schema: type, prefix: str = "") -> dict[str, bool]:
    """Every dotted key of a settings class, and whether it is a class of settings itself."""
    hints = get_type_hints(schema)
    known: dict[str, bool] = {}
    for each in fields(schema):
        name = f"{prefix}{each.name}"
        inner = hints[each.name]
        known[name] = is_dataclass(inner)
        if is_dataclass(inner) and isinstance(inner, type):
            known |= _known_keys(inner, f"{name}.")
    return known


def _refuse_unknown_keys(overrides: Sequence[str], schema: type) -> None:
    """Name the nearest key where an override names none."""
    known = _known_keys(schema)
    groups = sorted(
        each.name for each in CONFIG_DIR.iterdir() if each.is_dir() and each.name != "hydra"
    )
    for override in overrides:
        key, equals, value = override.partition("=")
        key = key.lstrip("+~")
        if not equals or not key.strip() or value == "???":
            raise ConfigError(
                explain(
                    "command line",
                    expected="key=value",
                    got=repr(override),
                    do="Run cosmos-transfer generate --help for the keys.",
                )
            )
        if "@" in key or key in groups:
            continue
        if key in known:
            continue
        parent = key.rpartition(".")[0]
        if known.get(parent) is False:
            raise ConfigError(
                explain(
                    key,
                    expected=f"the whole table in {parent}",
                    got="one entry of it",
                    do=f"Write '{parent}={{{key.rpartition('.')[2]}: 1.0, default: 0.0}}'.",
                )
            )
        candidates = sorted({*known, *groups})
        near = get_close_matches(key, candidates, n=1, cutoff=0.5)
        last = get_close_matches(key.rpartition(".")[2], candidates, n=1, cutoff=0.6)
        suggestion = next(iter(near or last), None)
        raise ConfigError(
            explain(
                "command line",
                expected="a known key",
                got=repr(key),
                do=f"Did you mean {suggestion}?"
                if suggestion
                else "Run cosmos-transfer generate --help for the keys.",
            )
        )


def _explain_hydra(error: BaseException) -> str:
    """Hydra's complaint in our words: the key, what it holds, what came."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    cause = error.__cause__ or error.__context__
    if cause is not None:
        lines += [line.strip() for line in str(cause).splitlines() if line.strip()]
    text = " ".join(lines)
    key = re.search(r"full_key: (\S+)", text)
    value = re.search(r"Value '(.*?)' of type '(\w+)' could not be converted to (\w+)", text)
    if value:
        return explain(
            key.group(1) if key else "command line",
            expected=value.group(3).lower(),
            got=repr(value.group(1)),
            do="Give a value of that kind.",
        )
    if "submitit" in text and "Could not find" in text:
        return explain(
            "hydra/launcher",
            expected="hydra-submitit-launcher",
            got="none installed",
            do="Run pip install 'cosmos-transfer[slurm]'.",
        )
    option = re.search(
        r"Could not find '([^']+)'.*?Available options in '([^']+)':\s*((?:[\w-]+\s*)+)", text
    )
    if option:
        wanted = option.group(1).rpartition("/")[2]
        known = option.group(3).split()
        known = [
            each for each in known if (CONFIG_DIR / option.group(2) / f"{each}.yaml").is_file()
        ]
        near = get_close_matches(wanted, known, n=1)
        return explain(
            option.group(2),
            expected=f"one of {', '.join(known)}",
            got=repr(wanted),
            do=f"Did you mean {near[0]}?" if near else f"Choose one with {option.group(2)}=NAME.",
        )
    return explain(
        key.group(1) if key else "command line",
        expected="settings that compose",
        got=f"[{lines[0] if lines else type(error).__name__}]",
        do="Run cosmos-transfer generate --help for the keys and their values.",
    )

"""Import the user's AgentHarness or function by module:name; every mistake is one line."""

from __future__ import annotations

import sys
import sysconfig
import traceback
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.app import AgentHarness


def load_app(spec: str) -> AgentHarness:
    """Import the AgentHarness that `spec` names; the working directory is importable."""
    from holdfast.app import AgentHarness

    module_name, colon, name = spec.partition(":")
    if not (module_name and colon and name):
        raise HoldfastError(f"the app {spec!r} is not module:name, as in --app my_module:app")
    module, app = import_object(module_name, name)
    if not isinstance(app, AgentHarness):
        raise HoldfastError(
            f"{spec} is of type {type(app).__name__}, not an AgentHarness{_suggest(module)}"
        )
    return app


def import_object(module_name: str, name: str) -> tuple[ModuleType, object]:
    """Import a module. Returns it and its object of this name."""
    module = _import(module_name)
    value: object = module
    for part in name.split("."):
        if not hasattr(value, part):
            raise HoldfastError(
                f"the module {module_name} ({_file(module)}) has no {name!r}{_suggest(module)}"
            )
        value = getattr(value, part)
    return module, value


def _import(name: str) -> ModuleType:
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        # A missing import inside the module raises the same class, but is another mistake.
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            problem = f"there is no module {error.name!r}, neither in {folder} nor installed"
            raise HoldfastError(problem) from None
        raise HoldfastError(_describe(name, error)) from error
    except (Exception, SystemExit) as error:
        raise HoldfastError(_describe(name, error)) from error


def _describe(name: str, error: BaseException) -> str:
    """Return the error, and the file and line that raised it."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"the module {name} cannot be imported: {error.filename}:{error.lineno}: {error.msg}"
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<")
    ]
    # The deepest line of the user's code helps more than one in a library that it called.
    own = [frame for frame in frames if _is_user_code(frame.filename)] or frames
    line = f"{own[-1].filename}:{own[-1].lineno}: " if own else ""
    return f"the module {name} cannot be imported: {line}{type(error).__name__}: {error}"


def _is_user_code(file: str) -> bool:
    others = (
        Path(__file__).parents[1],
        *(Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")),
    )
    return not any(folder in Path(file).parents for folder in others)


def _file(module: ModuleType) -> str:
    return getattr(module, "__file__", None) or "built in"


def _suggest(module: ModuleType) -> str:
    """Name an AgentHarness of the module, if it has one."""
    from holdfast.app import AgentHarness

    names = [name for name, value in vars(module).items() if isinstance(value, AgentHarness)]
    return f"; did you mean {module.__name__}:{names[0]}?" if names else ""

"""The names of the Array API standard, and how they are called."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, Signature, signature
from typing import Any

import pytest
from array_api_signatures import INSPECTION, METHODS, NAMESPACES, signatures

from gemel import np

CASES = [(space, name, form) for space, held in NAMESPACES.items() for name, form in held.items()]
POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
NAMED = (Parameter.KEYWORD_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def check_takes(ours: Signature, standard: Signature) -> None:
    """Check that our function accepts every call the standard allows, with the same defaults."""
    own = list(ours.parameters.values())
    for place, wanted in enumerate(standard.parameters.values()):
        if wanted.kind in POSITIONAL:
            found = own[place]
            assert found.kind in POSITIONAL, f"{wanted} at {place} is {found}"
        else:
            found = next((p for p in own if p.name == wanted.name), own[0])
        if wanted.kind is Parameter.VAR_POSITIONAL:
            assert found.kind is Parameter.VAR_POSITIONAL
            continue
        if wanted.kind in NAMED:
            assert found.name == wanted.name, f"no {wanted.name}"
            assert found.kind in NAMED, f"{found.name} cannot be named"
        if wanted.default is not Parameter.empty:
            assert found.default == wanted.default, f"{wanted} is {found}"
    for found in own[len(standard.parameters) :]:
        variable = found.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
        in_standard = found.name in standard.parameters
        assert variable or in_standard or found.default is not Parameter.empty, f"{found} required"


@pytest.mark.parametrize(
    ("space", "name", "form"), CASES, ids=lambda v: v if type(v) is str else ""
)
def test_signature(space: str, name: str, form: Signature) -> None:
    module: Any = np
    for part in space.split(".")[1:]:
        module = getattr(module, part)
    function: Callable[..., Any] = getattr(module, name)
    check_takes(signature(function), form)


@pytest.mark.parametrize(("name", "form"), signatures(METHODS).items())
def test_method(name: str, form: Signature) -> None:
    method = getattr(np.ndarray, name)
    try:
        ours = signature(method)
    except ValueError:  # a slot of the core has no signature; it takes what Python gives it
        return
    check_takes(ours, form)


@pytest.mark.parametrize(("name", "form"), signatures(INSPECTION).items())
def test_inspection(name: str, form: Signature) -> None:
    check_takes(signature(getattr(np.__array_namespace_info__, name)), form)

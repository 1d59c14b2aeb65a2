"""Networks converted to mixed precision: excluded parts, hooks, copies and files."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import numpy
import pytest
from mixed_networks import LOW, WIDE, apart, begun, drawn, perceptron, products

import gemel
from gemel import amp, gluon
from gemel.errors import ArgumentError, ExportError, UnknownNameError
from gemel.gluon import nn
from gemel.ir import precision


def test_a_converted_network() -> None:
    net, x = begun(perceptron), drawn((6, 8))
    wanted = net(x)
    converted = amp.convert_hybrid_block(net, "bfloat16")
    assert [p.dtype for p in converted.collect_params().values()] == ["float32"] * 4
    assert 0 < apart(converted(x), wanted) < 0.03
    assert net(x).tolist() == wanted.tolist()
    with amp.autocast():
        assert net(x).tolist() == converted(x).tolist()
    outer = nn.HybridSequential()
    outer.add(converted, nn.Dense(2, in_units=4))
    outer[1].initialize()
    outer.hybridize()
    outer(x)
    assert products(outer._own.compiled.graph(x)) == LOW | WIDE
    for again in (copy.deepcopy(converted), pickle.loads(pickle.dumps(converted))):
        assert again(x).tolist() == converted(x).tolist()


def test_a_network_converted_to_float32_is_float32_in_every_scope() -> None:
    net, x = begun(perceptron), drawn((6, 8))
    wanted = net(x).tolist()
    back = amp.convert_hybrid_block(amp.convert_hybrid_block(net), "float32")
    with amp.autocast():
        assert back(x).tolist() == wanted != net(x).tolist()
        assert pickle.loads(pickle.dumps(back))(x).tolist() == wanted
    outer = nn.HybridSequential()
    outer.add(back)
    assert amp.convert_hybrid_block(outer)(x).tolist() == wanted


def test_parts_that_are_excluded() -> None:
    net, x = begun(perceptron), drawn((6, 8))
    converted = amp.convert_hybrid_block(net, excluded_sym_names=[net[1].name])
    converted(x)
    assert products(converted._own.compiled.graph(x)) == LOW | WIDE
    with pytest.raises(ArgumentError, match="Sequential is not a HybridBlock"):
        amp.convert_hybrid_block(nn.Sequential())


def test_excluded_parts_must_be_there() -> None:
    net = begun(perceptron)
    layer = net[1].name
    for name in (layer, f"{layer}_fwd", f"{layer}_matmul0", f"{net.name}_add1"):
        amp.convert_hybrid_block(net, excluded_sym_names=[name])
    for name in (layer[:-1], f"{layer}9", f"{layer}_fwt", f"{net.name}_ad1", ""):
        with pytest.raises(UnknownNameError, match=f"excluded part of the network '{name}'"):
            amp.convert_hybrid_block(net, excluded_sym_names=[layer, name])


def test_a_part_is_excluded_with_all_inside() -> None:
    net, x = nn.HybridSequential(), drawn((6, 8))
    net.add(nn.Dense(8, in_units=8), begun(perceptron))
    net[0].initialize()
    wanted = net(x).tolist()
    converted = amp.convert_hybrid_block(net, excluded_sym_names=[net[1].name])
    converted(x)
    assert products(converted._own.compiled.graph(x)) == LOW | WIDE
    assert products(converted._own.compiled.graph(x)) == LOW | WIDE
    whole = amp.convert_hybrid_block(net, excluded_sym_names=[net.name])
    assert whole(x).tolist() == wanted


def test_nodes_of_symbols_are_excluded(tmp_path: Path) -> None:
    net, x = begun(perceptron), drawn((6, 8))
    wanted = net(x)
    read = gluon.SymbolBlock.imports(*[net.export(tmp_path / "net")[0], ["data"]])
    read.load_parameters(tmp_path / "net-0000.params")
    for block in (net, read):
        left_out = [f"{net[0].name}_fwd"]
        converted = amp.convert_hybrid_block(block, excluded_sym_names=left_out)
        assert 0 < apart(converted(x), wanted) < 0.03
        assert products(converted._own.compiled.graph(x)) == LOW | WIDE
        left_out.append(net[1].name)
        whole = amp.convert_hybrid_block(block, excluded_sym_names=left_out)
        whole(x)
        assert products(whole._own.compiled.graph(x)) == WIDE


@pytest.mark.parametrize("excluded", [False, True])
def test_a_converted_network_with_hooks_inside_is_as_low(excluded: bool) -> None:
    net, x = begun(perceptron), drawn((6, 8))
    net.add(begun(lambda: nn.Dense(3, in_units=4)))
    names = [net[1].name] if excluded else []
    converted = amp.convert_hybrid_block(net, excluded_sym_names=names)
    wanted, seen = converted(x).tolist(), []
    with converted[1].register_forward_hook(lambda block, given, found: seen.append(found)):
        assert converted(x).tolist() == wanted
    assert len(seen) == 1
    assert converted(x).tolist() == wanted
    assert precision.current() is None


def test_files_hold_the_network_that_was_converted(tmp_path: Path) -> None:
    net, x = begun(perceptron), drawn((6, 8))
    wanted = net(x).tolist()
    converted = amp.convert_hybrid_block(net)
    mixed = converted(x).tolist()
    symbol, parameters = converted.export(tmp_path / "net")
    read = gluon.SymbolBlock.imports(symbol, ["data"], parameters)
    numpy.testing.assert_allclose(read(x).tolist(), wanted, rtol=1e-6)
    assert amp.convert_hybrid_block(read)(x).tolist() == mixed
    with pytest.raises(ExportError, match="remove_amp_cast=False"):
        converted.export(tmp_path / "net", remove_amp_cast=False)
    gemel.save(converted, tmp_path / "net.gemel")
    numpy.testing.assert_allclose(gemel.load(tmp_path / "net.gemel")(x).tolist(), wanted, rtol=1e-6)


def test_an_image_holds_the_casts() -> None:
    net, x = begun(perceptron), drawn((6, 8))
    compiled = gemel.compile(lambda x: net(x))
    plain = compiled.image(x)
    with amp.autocast():
        assert compiled.image(x) != plain
        assert "bf16" in compiled.source(x) or "uint16" in compiled.source(x)

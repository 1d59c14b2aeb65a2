"""Parameter files: round trips, files from other writers, and damaged files."""

from __future__ import annotations

import contextlib
from struct import pack, unpack_from

import pytest

from gemel import nd, np, npx
from gemel.errors import ParameterFileError
from gemel.gluon import nn
from gemel.npx import serialize
from gemel.npx.engine import NUMPY_MODE


def network(in_units=3):
    net = nn.Sequential()
    net.add(nn.Dense(4, activation="relu", in_units=in_units), nn.Dense(2, in_units=4))
    return net


def values(net):
    return {name: p.data().tolist() for name, p in net.collect_params().items()}


@pytest.fixture
def saved(tmp_path):
    net = network()
    net.initialize()
    path = tmp_path / "net.params"
    net.save_parameters(path)
    return path, net


def test_round_trip(saved):
    path, net = saved
    other = network()
    other.load_parameters(path)
    assert values(other) == values(net)
    x = np.ones((2, 3))
    assert other(x).tolist() == net(x).tolist()
    deferred = network(in_units=0)
    deferred.load_parameters(path)
    assert values(deferred) == values(net)
    assert [file.name for file in path.parent.iterdir()] == ["net.params"]


@pytest.mark.parametrize(
    "dtype", ["bool", "uint8", "int8", "int32", "int64", "float16", "float32", "float64"]
)
def test_every_dtype_and_shape(tmp_path, dtype):
    arrays = {
        "scalar": np.ones((), dtype=dtype),
        "empty": np.zeros((0, 3), dtype=dtype),
        "cube": np.array([[[1, 0], [1, 1]], [[0, 0], [1, 0]]], dtype=dtype),
        "strided": np.array([[1, 0], [1, 1]], dtype=dtype).T,
    }
    serialize.save(tmp_path / "a", arrays)
    found = serialize.load(tmp_path / "a")
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        assert found[name].shape == array.shape
        assert str(found[name].dtype) == dtype
        assert found[name].tolist() == array.tolist()


def test_lists(tmp_path):
    serialize.save(tmp_path / "a", [np.ones(2), np.zeros(1)])
    assert [a.tolist() for a in serialize.load(tmp_path / "a")] == [[1, 1], [0]]
    with pytest.raises(ParameterFileError, match="have no names"):
        serialize.load_named(tmp_path / "a")


def elements(*numbers):
    return pack(f"<{len(numbers)}f", *numbers)


def file_of(array, name=b"arg:w"):
    return pack("<QQQ", 0x112, 0, 1) + array + pack("<QQ", 1, len(name)) + name


MXNET = {
    "v3": pack("<IiIqiii", 0xF993FACA, 0, 1, 2, 1, 0, 0),
    "v2": pack("<IiIqiii", 0xF993FAC9, 0, 1, 2, 2, 0, 0),
    "v1": pack("<IIqiii", 0xF993FAC8, 1, 2, 1, 0, 0),
    "v0": pack("<IIiii", 1, 2, 1, 0, 0),
}


@pytest.mark.parametrize("version", MXNET)
def test_files_of_mxnet(tmp_path, version):
    path = tmp_path / "old"
    path.write_bytes(file_of(MXNET[version] + elements(1.5, -2)))
    assert serialize.load_named(path)["w"].tolist() == [1.5, -2]


@pytest.mark.parametrize("version", ["v2", "v3"])
def test_mxnet_reads_what_is_written(tmp_path, version):
    """The bytes are those of the format, except a checksum in a field that MXNet does not read.

    After `set_np` MXNet refuses version 2, and without it version 3.
    """
    if version == "v3":
        npx.set_np()
    try:
        serialize.save(tmp_path / "a", {"arg:w": np.array([1.5, -2])})
    finally:
        npx.reset_np()
        NUMPY_MODE.update(shape=True, array=True)
    content = (tmp_path / "a").read_bytes()
    magic = unpack_from("<I", MXNET[version])[0]
    expected = file_of(MXNET["v3"] + elements(1.5, -2)).replace(
        pack("<I", 0xF993FACA), pack("<I", magic)
    )
    assert content[:8] + bytes(8) + content[16:] == expected


def test_files_of_nd(tmp_path):
    """MXNet 1 stores lists and dictionaries; one array is stored as a list of one."""
    path = tmp_path / "nd"
    nd.save(path, nd.array([1, 2]))
    for found in (nd.load(path), nd.load_frombuffer(path.read_bytes())):
        assert isinstance(found, list) and found[0].tolist() == [1, 2]
        assert type(found[0]) is nd.NDArray
    nd.save(path, {"w": nd.array([1, 2])})
    assert list(nd.load(path)) == ["w"]


def test_full_names_are_understood(tmp_path):
    net = network()
    net.initialize()
    path = tmp_path / "named"
    serialize.save(path, {p.name: p.data() for p in net.collect_params().values()})
    before = values(net)
    net.initialize("ones", force_reinit=True)
    net.load_parameters(path)
    assert values(net) == before


def assert_refused(net, path, message, **settings):
    before = values(net)
    with pytest.raises(ParameterFileError, match=message):
        net.load_parameters(path, **settings)
    assert values(net) == before


def test_every_truncation_is_refused(saved):
    path, net = saved
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        assert_refused(net, path, "truncated|damaged|not a parameter file")


def test_truncation_without_a_checksum_is_refused(saved):
    path, net = saved
    content = path.read_bytes()
    content = content[:8] + bytes(8) + content[16:]
    path.write_bytes(content)
    net.load_parameters(path)
    for length in range(len(content)):
        path.write_bytes(content[:length])
        assert_refused(net, path, "truncated|damaged|not a parameter file")
    path.write_bytes(content + b"\0")
    assert_refused(net, path, "continues after its end")


def test_every_flipped_byte_is_refused(saved):
    path, net = saved
    content = path.read_bytes()
    for place in range(len(content)):
        broken = bytearray(content)
        broken[place] ^= 0x41
        path.write_bytes(bytes(broken))
        assert_refused(net, path, "damaged|not a parameter file|checksum")


def test_flipped_bytes_without_a_checksum_never_crash(saved):
    path, _net = saved
    content = path.read_bytes()
    content = content[:8] + bytes(8) + content[16:]
    for place in range(len(content)):
        broken = bytearray(content)
        broken[place] ^= 0x81
        path.write_bytes(bytes(broken))
        with contextlib.suppress(ParameterFileError):
            serialize.load(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "truncated"),
        (b"PK\x03\x04" + bytes(40), "damaged or truncated archive"),
        (bytes(64), "not a parameter file"),
        (pack("<QQQ", 0x112, 0, 1 << 60), "the number of arrays"),
        (file_of(pack("<IiIqiii", 0xF993FACA, 0, 1, 1 << 60, 1, 0, 0)), "are left"),
        (file_of(pack("<IiIqiii", 0xF993FACA, 0, 1, -5, 1, 0, 0)), "shape"),
        (file_of(pack("<IiI", 0xF993FACA, 0, 99)), "99 dimensions"),
        (file_of(pack("<Iii", 0xF993FACA, 0, -1)), "an array without a value"),
        (file_of(pack("<Iiiqq", 0xF993FACA, 0, 2, 3, -1)), "an array without a value"),
        (file_of(pack("<IiIqiii", 0xF993FACA, 5, 1, 2, 1, 0, 0)), "storage type 5"),
        (file_of(pack("<IiIqiii", 0xF993FACA, 0, 1, 0, 1, 0, 99)), "dtype number 99"),
        (file_of(pack("<IiIqiii", 0xF993FACA, 0, 1, 0, 1, 0, 77)), "dtype number 77"),
        (file_of(MXNET["v3"] + elements(1, 2), b"\xff\xfe"), "UTF-8"),
    ],
)
def test_hostile_files_are_named(tmp_path, content, message):
    path = tmp_path / "bad"
    path.write_bytes(content)
    with pytest.raises(ParameterFileError, match=message) as error:
        serialize.load(path)
    assert str(path) in str(error.value)


def test_mismatches_are_named(saved, tmp_path):
    path, _ = saved
    wide = network(in_units=5)
    wide.initialize()
    assert_refused(wide, path, r"0.weight has shape \(4, 3\), the network's has \(4, 5\)")
    longer = network()
    longer.add(nn.Dense(1, in_units=2))
    longer.initialize()
    assert_refused(longer, path, "lacks 2.weight, 2.bias.*allow_missing")
    longer.load_parameters(path, allow_missing=True)
    shorter = nn.Sequential()
    shorter.add(nn.Dense(4, in_units=3))
    shorter.initialize()
    assert_refused(shorter, path, "has no 1.weight, 1.bias.*ignore_extra")
    shorter.load_parameters(path, ignore_extra=True)
    double = network()
    double.initialize()
    double.cast("float64")
    assert_refused(double, path, "float32, the network's is float64.*cast_dtype")
    double.load_parameters(path, cast_dtype=True)


def test_a_failed_save_leaves_the_old_file(saved):
    path, _ = saved
    content = path.read_bytes()
    fresh = network(in_units=0)
    fresh.initialize()
    with pytest.raises(RuntimeError):
        fresh.save_parameters(path)
    assert path.read_bytes() == content


def test_load_dict():
    net = network()
    net.initialize()
    arrays = {name: p.data().copy() * 2 for name, p in net.collect_params().items()}
    net.load_dict(arrays)
    assert values(net) == {name: a.tolist() for name, a in arrays.items()}
    with pytest.raises(ParameterFileError, match=r"load_dict.*lacks 0.bias"):
        net.load_dict({"0.weight": arrays["0.weight"]})

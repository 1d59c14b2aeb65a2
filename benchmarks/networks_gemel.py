"""The networks of `networks` in gemel. networks_torch.py has the same ones in the same order."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from gemel import np, npx
from gemel.gluon import Parameter, nn, rnn


def row(*layers: Any) -> nn.HybridSequential:
    """Layers one after the other."""
    found = nn.HybridSequential()
    found.add(*layers)
    return found


class SelfAttention(nn.HybridBlock):
    """Attention by several heads among the tokens of a sequence."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.project = nn.Dense(3 * width, flatten=False)
        self.output = nn.Dense(width, flatten=False)

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        parts = self.project(x).reshape(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.transpose(2, 0, 3, 1, 4)
        found = npx.attention(query, key, value, causal=self.causal)
        return self.output(found.swapaxes(1, 2).reshape(batch, length, width))


class TransformerBlock(nn.HybridBlock):
    """Attention and a network of two layers, each after a normalization and beside a shortcut."""

    def __init__(self, width: int, heads: int, causal: bool = False) -> None:
        super().__init__()
        self.attention = row(nn.LayerNorm(), SelfAttention(width, heads, causal))
        wide, narrow = nn.Dense(4 * width, flatten=False), nn.Dense(width, flatten=False)
        self.dense = row(nn.LayerNorm(), wide, nn.GELU(), narrow)

    def forward(self, x: Any) -> Any:
        x = x + self.attention(x)
        return x + self.dense(x)


class GPT(nn.HybridBlock):
    """A language model: each token attends to those before it."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(1000, 256)
        self.places = nn.Embedding(128, 256)
        self.blocks = row(*(TransformerBlock(256, 4, causal=True) for _ in range(4)))
        self.norm = nn.LayerNorm()
        self.output = nn.Dense(1000, flatten=False, use_bias=False)

    def forward(self, tokens: Any) -> Any:
        x = self.tokens(tokens) + self.places(np.arange(tokens.shape[1]))
        return self.output(self.norm(self.blocks(x)))


class ViT(nn.HybridBlock):
    """A transformer whose tokens are 4 x 4 patches of a picture."""

    def __init__(self) -> None:
        super().__init__()
        self.places = Parameter("places", shape=(1, 64, 192))
        self.patches = nn.Conv2D(192, 4, 4)
        self.blocks = row(*(TransformerBlock(192, 3) for _ in range(4)))
        self.norm = nn.LayerNorm()
        self.output = nn.Dense(10)

    def forward(self, x: Any) -> Any:
        x = self.patches(x).reshape(x.shape[0], 192, 64).swapaxes(1, 2) + self.places.data()
        return self.output(self.norm(self.blocks(x)).mean(axis=1))


class BertLayer(nn.HybridBlock):
    """A transformer's layer whose attention is written out, with a mask; norms are last."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.scale = heads, (width // heads) ** -0.5
        self.query, self.key = nn.Dense(width, flatten=False), nn.Dense(width, flatten=False)
        self.value, self.output = nn.Dense(width, flatten=False), nn.Dense(width, flatten=False)
        self.norm = nn.LayerNorm()
        wide, narrow = nn.Dense(4 * width, flatten=False), nn.Dense(width, flatten=False)
        self.dense = row(wide, nn.GELU(), narrow)
        self.last_norm = nn.LayerNorm()

    def forward(self, x: Any, mask: Any) -> Any:
        shape = (x.shape[0], x.shape[1], self.heads, x.shape[2] // self.heads)
        query, key, value = (
            layer(x).reshape(shape).swapaxes(1, 2) for layer in (self.query, self.key, self.value)
        )
        scores = np.where(mask, np.matmul(query, key.swapaxes(2, 3)) * self.scale, -1e9)
        found = np.matmul(npx.softmax(scores, axis=-1), value)
        x = self.norm(x + self.output(found.swapaxes(1, 2).reshape(x.shape)))
        return self.last_norm(x + self.dense(x))


class Bert(nn.HybridBlock):
    """A classifier of sequences, some tokens of which are masked."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(2000, 256)
        self.places = nn.Embedding(64, 256)
        self.norm = nn.LayerNorm()
        self.first, self.second = BertLayer(256, 4), BertLayer(256, 4)
        self.output = nn.Dense(2)

    def forward(self, tokens: Any, given: Any) -> Any:
        mask = given.reshape(given.shape[0], 1, 1, given.shape[1]) > 0
        x = self.norm(self.tokens(tokens) + self.places(np.arange(tokens.shape[1])))
        return self.output(self.second(self.first(x, mask), mask)[:, 0])


class Residual(nn.HybridBlock):
    """Two convolutions after group normalizations, beside a shortcut."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        first = (nn.GroupNorm(8), nn.SiLU(), nn.Conv2D(outputs, 3, 1, 1))
        second = (nn.GroupNorm(8), nn.SiLU(), nn.Conv2D(outputs, 3, 1, 1))
        self.body = row(*first, *second)
        self.shortcut = nn.Identity() if inputs == outputs else nn.Conv2D(outputs, 1)

    def forward(self, x: Any) -> Any:
        return self.body(x) + self.shortcut(x)


class UNet(nn.HybridBlock):
    """From a picture to one of the same size; what is halved twice meets what is not."""

    def __init__(self) -> None:
        super().__init__()
        self.first = row(nn.Conv2D(32, 3, 1, 1), Residual(32, 32))
        self.second = row(nn.Conv2D(32, 3, 2, 1), Residual(32, 64))
        self.third = row(nn.Conv2D(64, 3, 2, 1), Residual(64, 128))
        self.rise = nn.Conv2DTranspose(64, 4, 2, 1)
        self.fourth = row(Residual(128, 64), nn.Conv2DTranspose(32, 4, 2, 1))
        self.fifth = row(Residual(64, 32), nn.Conv2D(3, 3, 1, 1))

    def forward(self, x: Any) -> Any:
        large = self.first(x)
        small = self.second(large)
        x = self.rise(self.third(small))
        x = self.fourth(np.concatenate([x, small], axis=1))
        return self.fifth(np.concatenate([x, large], axis=1))


class Generator(nn.HybridBlock):
    """A GAN's generator: transposed convolutions from noise to a picture."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[Any] = [nn.Conv2DTranspose(256, 4, 1, 0, use_bias=False)]
        for channels in (128, 64):
            layers += [nn.BatchNorm(), nn.Activation("relu")]
            layers.append(nn.Conv2DTranspose(channels, 4, 2, 1, use_bias=False))
        last = nn.Conv2DTranspose(3, 4, 2, 1)
        self.body = row(*layers, nn.BatchNorm(), nn.Activation("relu"), last)

    def forward(self, x: Any) -> Any:
        return np.tanh(self.body(x))


class Discriminator(nn.HybridBlock):
    """A GAN's discriminator: convolutions with strides."""

    def __init__(self) -> None:
        super().__init__()
        layers = [nn.Conv2D(64, 4, 2, 1), nn.LeakyReLU(0.2)]
        for channels in (128, 256):
            layers.append(nn.Conv2D(channels, 4, 2, 1, use_bias=False))
            layers += [nn.BatchNorm(), nn.LeakyReLU(0.2)]
        self.body = row(*layers, nn.Conv2D(1, 4), nn.Flatten())

    def forward(self, x: Any) -> Any:
        return self.body(x)


class ConvNeXtBlock(nn.HybridBlock):
    """A depthwise 7 x 7 convolution, and two layers on the channels of each place."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2D(channels, 7, 1, 3, groups=channels)
        wide, narrow = nn.Dense(4 * channels, flatten=False), nn.Dense(channels, flatten=False)
        self.dense = row(nn.LayerNorm(), wide, nn.GELU(), narrow)

    def forward(self, x: Any) -> Any:
        found = self.dense(self.depthwise(x).transpose(0, 2, 3, 1))
        return x + found.transpose(0, 3, 1, 2)


class ConvNeXt(nn.HybridBlock):
    """A classifier of pictures."""

    def __init__(self) -> None:
        super().__init__()
        first = (nn.Conv2D(64, 4, 4), ConvNeXtBlock(64), ConvNeXtBlock(64))
        self.body = row(*first, nn.Conv2D(128, 2, 2), ConvNeXtBlock(128), ConvNeXtBlock(128))
        self.output = nn.Dense(10)

    def forward(self, x: Any) -> Any:
        return self.output(self.body(x).mean(axis=(2, 3)))


class ResNetBlock(nn.HybridBlock):
    """Two convolutions with batch normalization, beside a shortcut."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        stride = 1 if inputs == outputs else 2
        first = (nn.Conv2D(outputs, 3, stride, 1, use_bias=False), nn.BatchNorm())
        second = (nn.Conv2D(outputs, 3, 1, 1, use_bias=False), nn.BatchNorm())
        self.body = row(*first, nn.Activation("relu"), *second)
        turned = nn.Conv2D(outputs, 1, stride, use_bias=False)
        self.shortcut = nn.Identity() if inputs == outputs else turned

    def forward(self, x: Any) -> Any:
        return npx.relu(self.body(x) + self.shortcut(x))


class ResNet20(nn.HybridBlock):
    """A classifier of small pictures."""

    def __init__(self) -> None:
        super().__init__()
        layers = [nn.Conv2D(16, 3, 1, 1, use_bias=False), nn.BatchNorm(), nn.Activation("relu")]
        channels = (16, 16, 16, 16, 32, 32, 32, 64, 64, 64)
        self.body = row(*layers, *(ResNetBlock(*sides) for sides in pairwise(channels)))
        self.output = nn.Dense(10)

    def forward(self, x: Any) -> Any:
        return self.output(self.body(x).mean(axis=(2, 3)))


class Excitation(nn.HybridBlock):
    """Scales each channel by a number that is computed from the means of all."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.dense = row(nn.Dense(channels // 4, activation="relu"), nn.Dense(channels))

    def forward(self, x: Any) -> Any:
        scale = np.clip(self.dense(x.mean(axis=(2, 3))) / 6 + 0.5, 0, 1)
        return x * scale.reshape(*scale.shape, 1, 1)


class InvertedResidual(nn.HybridBlock):
    """A depthwise convolution between two that widen and narrow the channels."""

    def __init__(self, inputs: int, wide: int, outputs: int, size: int, stride: int) -> None:
        super().__init__()
        first = (nn.Conv2D(wide, 1, use_bias=False), nn.BatchNorm(), nn.SiLU())
        depthwise = nn.Conv2D(wide, size, stride, size // 2, groups=wide, use_bias=False)
        last = (nn.Conv2D(outputs, 1, use_bias=False), nn.BatchNorm())
        self.body = row(*first, depthwise, nn.BatchNorm(), nn.SiLU(), Excitation(wide), *last)
        self.beside = stride == 1 and inputs == outputs

    def forward(self, x: Any) -> Any:
        return x + self.body(x) if self.beside else self.body(x)


class InvertedResiduals(nn.HybridBlock):
    """A classifier of pictures for small machines."""

    def __init__(self) -> None:
        super().__init__()
        first = (InvertedResidual(16, 64, 24, 3, 2), InvertedResidual(24, 72, 24, 3, 1))
        second = (InvertedResidual(24, 72, 40, 5, 2), InvertedResidual(40, 120, 40, 5, 1))
        self.body = row(nn.Conv2D(16, 3, 2, 1), *first, *second)
        self.output = nn.Dense(10)

    def forward(self, x: Any) -> Any:
        return self.output(self.body(x).mean(axis=(2, 3)))


class StyleTransfer(nn.HybridBlock):
    """From a picture to one in another style, with instance normalization."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[Any] = [nn.ReflectionPad2D(4)]
        for channels, size, stride in ((16, 9, 1), (32, 3, 2), (32, 3, 1)):
            layers.append(nn.Conv2D(channels, size, stride, int(size == 3)))
            layers += [nn.InstanceNorm(scale=True), nn.Activation("relu")]
        self.body = row(*layers)
        rise = (nn.Conv2D(16, 3, 1, 1), nn.InstanceNorm(scale=True), nn.Activation("relu"))
        self.output = row(*rise, nn.Conv2D(3, 9, 1, 4))

    def forward(self, x: Any) -> Any:
        x = self.body(x)
        return self.output(np.repeat(np.repeat(x, 2, axis=2), 2, axis=3))


class Video(nn.HybridBlock):
    """A classifier of short films."""

    def __init__(self) -> None:
        super().__init__()
        layers = []
        for channels in (16, 32):
            layers += [nn.Conv3D(channels, 3, 1, 1), nn.BatchNorm()]
            layers += [nn.Activation("relu"), nn.MaxPool3D(2)]
        self.body = row(*layers, nn.Conv3D(64, 3, 1, 1), nn.Activation("relu"))
        self.output = nn.Dense(10)

    def forward(self, x: Any) -> Any:
        return self.output(self.body(x).mean(axis=(2, 3, 4)))


class WaveNetBlock(nn.HybridBlock):
    """A gated convolution that reads this moment and an earlier one, beside a shortcut."""

    def __init__(self, channels: int, distance: int) -> None:
        super().__init__()
        self.channels, self.distance = channels, distance
        self.gates = nn.Conv1D(2 * channels, 2, dilation=distance)
        self.output = nn.Conv1D(channels, 1)

    def forward(self, x: Any) -> Any:
        gates = self.gates(np.pad(x, ((0, 0), (0, 0), (self.distance, 0))))
        value, gate = gates[:, : self.channels], gates[:, self.channels :]
        return x + self.output(np.tanh(value) * npx.sigmoid(gate))


class WaveNet(nn.HybridBlock):
    """Predicts each sample of a sound from those before it."""

    def __init__(self) -> None:
        super().__init__()
        self.samples = nn.Embedding(256, 64)
        self.blocks = row(*(WaveNetBlock(64, 2**level) for level in range(8)))
        self.output = nn.Conv1D(256, 1)

    def forward(self, samples: Any) -> Any:
        x = self.blocks(self.samples(samples).swapaxes(1, 2))
        return self.output(npx.relu(x)).swapaxes(1, 2)


class TextConvolutions(nn.HybridBlock):
    """A classifier of sequences by their most striking groups of 3, 4 and 5 words."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(5000, 100)
        self.groups = row(*(nn.Conv1D(100, size, activation="relu") for size in (3, 4, 5)))
        self.output = nn.Dense(2)

    def forward(self, words: Any) -> Any:
        x = self.words(words).swapaxes(1, 2)
        found = [group(x).max(axis=2) for group in self.groups]
        return self.output(np.concatenate(found, axis=1))


class MixerBlock(nn.HybridBlock):
    """Two dense layers along the patches, and two along the channels."""

    def __init__(self, patches: int, channels: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm()
        wide, narrow = nn.Dense(2 * patches, flatten=False), nn.Dense(patches, flatten=False)
        self.along = row(wide, nn.GELU(), narrow)
        wide, narrow = nn.Dense(2 * channels, flatten=False), nn.Dense(channels, flatten=False)
        self.across = row(nn.LayerNorm(), wide, nn.GELU(), narrow)

    def forward(self, x: Any) -> Any:
        x = x + self.along(self.norm(x).swapaxes(1, 2)).swapaxes(1, 2)
        return x + self.across(x)


class Mixer(nn.HybridBlock):
    """A classifier of pictures of dense layers only."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2D(128, 4, 4)
        self.blocks = row(*(MixerBlock(64, 128) for _ in range(4)))
        self.output = nn.Dense(10)

    def forward(self, x: Any) -> Any:
        x = self.patches(x).reshape(x.shape[0], 128, 64).swapaxes(1, 2)
        return self.output(self.blocks(x).mean(axis=1))


class BidirectionalGRU(nn.HybridBlock):
    """A classifier of sequences that are read in both directions."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(2000, 128)
        self.layers = rnn.GRU(128, 2, layout="NTC", bidirectional=True)
        self.output = nn.Dense(20)

    def forward(self, words: Any) -> Any:
        return self.output(self.layers(self.words(words)).mean(axis=1))


class GraphConvolutions(nn.HybridBlock):
    """A classifier of the nodes of a graph, which send messages along the edges."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = row(nn.Dense(64), nn.Dense(64))
        self.output = nn.Dense(10)

    def forward(self, x: Any, source: Any, target: Any) -> Any:
        for layer in self.layers:
            messages, nothing = layer(x)[source], np.zeros((x.shape[0], 64))
            x = npx.relu(npx.index_add(nothing, target.reshape(1, -1), messages))
        return self.output(x)


class Recommender(nn.HybridBlock):
    """Rates pairs of a user and a thing."""

    def __init__(self) -> None:
        super().__init__()
        self.users = nn.Embedding(100_000, 32)
        self.things = nn.Embedding(50_000, 32)
        first = (nn.Dense(128, activation="relu"), nn.Dense(64, activation="relu"))
        self.dense = row(*first, nn.Dense(1))

    def forward(self, users: Any, things: Any) -> Any:
        return self.dense(np.concatenate([self.users(users), self.things(things)], axis=1))


class DecoderLayer(nn.HybridBlock):
    """A transformer's layer for one token, with the keys and values of those before it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm()
        self.project = nn.Dense(3 * width, flatten=False)
        self.output = nn.Dense(width, flatten=False)
        wide, narrow = nn.Dense(4 * width, flatten=False), nn.Dense(width, flatten=False)
        self.dense = row(nn.LayerNorm(), wide, nn.GELU(), narrow)

    def forward(self, x: Any, keys: Any, values: Any) -> Any:
        batch, length, width = x.shape
        parts = self.project(self.norm(x))
        parts = parts.reshape(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.transpose(2, 0, 3, 1, 4)
        keys = np.concatenate([keys, key], axis=2)
        values = np.concatenate([values, value], axis=2)
        found = npx.attention(query, keys, values)
        x = x + self.output(found.swapaxes(1, 2).reshape(x.shape))
        return x + self.dense(x), keys, values


class Decoder(nn.HybridBlock):
    """The next token of one sequence, and the keys and values with those of this token."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = DecoderLayer(256, 8), DecoderLayer(256, 8)
        self.output = row(nn.LayerNorm(), nn.Dense(5000, flatten=False))

    def forward(self, x: Any, keys: Any, values: Any) -> Any:
        x, *first = self.first(x, keys[0], values[0])
        x, *second = self.second(x, keys[1], values[1])
        return [self.output(x), *first, *second]

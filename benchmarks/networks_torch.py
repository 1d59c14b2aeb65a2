"""The networks of `networks` in torch. networks_gemel.py has the same ones in the same order."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.nn import functional

row = nn.Sequential


class SelfAttention(nn.Module):
    """Attention by several heads among the tokens of a sequence."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.project = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        parts = self.project(x).reshape(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        found = functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        return self.output(found.swapaxes(1, 2).reshape(batch, length, width))


class TransformerBlock(nn.Module):
    """Attention and a network of two layers, each after a normalization and beside a shortcut."""

    def __init__(self, width: int, heads: int, causal: bool = False) -> None:
        super().__init__()
        self.attention = row(nn.LayerNorm(width), SelfAttention(width, heads, causal))
        wide, narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dense = row(nn.LayerNorm(width), wide, nn.GELU(), narrow)

    def forward(self, x: Any) -> Any:
        x = x + self.attention(x)
        return x + self.dense(x)


class GPT(nn.Module):
    """A language model: each token attends to those before it."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(1000, 256)
        self.places = nn.Embedding(128, 256)
        self.blocks = row(*(TransformerBlock(256, 4, causal=True) for _ in range(4)))
        self.norm = nn.LayerNorm(256)
        self.output = nn.Linear(256, 1000, bias=False)

    def forward(self, tokens: Any) -> Any:
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        return self.output(self.norm(self.blocks(x)))


class ViT(nn.Module):
    """A transformer whose tokens are 4 x 4 patches of a picture."""

    def __init__(self) -> None:
        super().__init__()
        self.places = nn.Parameter(torch.zeros(1, 64, 192))
        self.patches = nn.Conv2d(3, 192, 4, 4)
        self.blocks = row(*(TransformerBlock(192, 3) for _ in range(4)))
        self.norm = nn.LayerNorm(192)
        self.output = nn.Linear(192, 10)

    def forward(self, x: Any) -> Any:
        x = self.patches(x).reshape(x.shape[0], 192, 64).swapaxes(1, 2) + self.places
        return self.output(self.norm(self.blocks(x)).mean(dim=1))


class BertLayer(nn.Module):
    """A transformer's layer whose attention is written out, with a mask; norms are last."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.scale = heads, (width // heads) ** -0.5
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.value, self.output = nn.Linear(width, width), nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        wide, narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dense = row(wide, nn.GELU(), narrow)
        self.last_norm = nn.LayerNorm(width)

    def forward(self, x: Any, mask: Any) -> Any:
        shape = (x.shape[0], x.shape[1], self.heads, x.shape[2] // self.heads)
        query, key, value = (
            layer(x).reshape(shape).swapaxes(1, 2) for layer in (self.query, self.key, self.value)
        )
        scores = torch.where(mask, torch.matmul(query, key.swapaxes(2, 3)) * self.scale, -1e9)
        found = torch.matmul(torch.softmax(scores, dim=-1), value)
        x = self.norm(x + self.output(found.swapaxes(1, 2).reshape(x.shape)))
        return self.last_norm(x + self.dense(x))


class Bert(nn.Module):
    """A classifier of sequences, some tokens of which are masked."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(2000, 256)
        self.places = nn.Embedding(64, 256)
        self.norm = nn.LayerNorm(256)
        self.first, self.second = BertLayer(256, 4), BertLayer(256, 4)
        self.output = nn.Linear(256, 2)

    def forward(self, tokens: Any, given: Any) -> Any:
        mask = given.reshape(given.shape[0], 1, 1, given.shape[1]) > 0
        x = self.norm(self.tokens(tokens) + self.places(torch.arange(tokens.shape[1])))
        return self.output(self.second(self.first(x, mask), mask)[:, 0])


class Residual(nn.Module):
    """Two convolutions after group normalizations, beside a shortcut."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        first = (nn.GroupNorm(8, inputs), nn.SiLU(), nn.Conv2d(inputs, outputs, 3, 1, 1))
        second = (nn.GroupNorm(8, outputs), nn.SiLU(), nn.Conv2d(outputs, outputs, 3, 1, 1))
        self.body = row(*first, *second)
        self.shortcut = nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1)

    def forward(self, x: Any) -> Any:
        return self.body(x) + self.shortcut(x)


class UNet(nn.Module):
    """From a picture to one of the same size; what is halved twice meets what is not."""

    def __init__(self) -> None:
        super().__init__()
        self.first = row(nn.Conv2d(3, 32, 3, 1, 1), Residual(32, 32))
        self.second = row(nn.Conv2d(32, 32, 3, 2, 1), Residual(32, 64))
        self.third = row(nn.Conv2d(64, 64, 3, 2, 1), Residual(64, 128))
        self.rise = nn.ConvTranspose2d(128, 64, 4, 2, 1)
        self.fourth = row(Residual(128, 64), nn.ConvTranspose2d(64, 32, 4, 2, 1))
        self.fifth = row(Residual(64, 32), nn.Conv2d(32, 3, 3, 1, 1))

    def forward(self, x: Any) -> Any:
        large = self.first(x)
        small = self.second(large)
        x = self.rise(self.third(small))
        x = self.fourth(torch.concatenate([x, small], dim=1))
        return self.fifth(torch.concatenate([x, large], dim=1))


class Generator(nn.Module):
    """A GAN's generator: transposed convolutions from noise to a picture."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[Any] = [nn.ConvTranspose2d(100, 256, 4, 1, 0, bias=False)]
        for inputs, outputs in ((256, 128), (128, 64)):
            layers += [nn.BatchNorm2d(inputs), nn.ReLU()]
            layers.append(nn.ConvTranspose2d(inputs, outputs, 4, 2, 1, bias=False))
        last = nn.ConvTranspose2d(64, 3, 4, 2, 1)
        self.body = row(*layers, nn.BatchNorm2d(64), nn.ReLU(), last)

    def forward(self, x: Any) -> Any:
        return torch.tanh(self.body(x))


class Discriminator(nn.Module):
    """A GAN's discriminator: convolutions with strides."""

    def __init__(self) -> None:
        super().__init__()
        layers = [nn.Conv2d(3, 64, 4, 2, 1), nn.LeakyReLU(0.2)]
        for inputs, outputs in ((64, 128), (128, 256)):
            layers.append(nn.Conv2d(inputs, outputs, 4, 2, 1, bias=False))
            layers += [nn.BatchNorm2d(outputs), nn.LeakyReLU(0.2)]
        self.body = row(*layers, nn.Conv2d(256, 1, 4), nn.Flatten())

    def forward(self, x: Any) -> Any:
        return self.body(x)


class ConvNeXtBlock(nn.Module):
    """A depthwise 7 x 7 convolution, and two layers on the channels of each place."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, 1, 3, groups=channels)
        wide, narrow = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)
        self.dense = row(nn.LayerNorm(channels), wide, nn.GELU(), narrow)

    def forward(self, x: Any) -> Any:
        found = self.dense(self.depthwise(x).permute(0, 2, 3, 1))
        return x + found.permute(0, 3, 1, 2)


class ConvNeXt(nn.Module):
    """A classifier of pictures."""

    def __init__(self) -> None:
        super().__init__()
        first = (nn.Conv2d(3, 64, 4, 4), ConvNeXtBlock(64), ConvNeXtBlock(64))
        self.body = row(*first, nn.Conv2d(64, 128, 2, 2), ConvNeXtBlock(128), ConvNeXtBlock(128))
        self.output = nn.Linear(128, 10)

    def forward(self, x: Any) -> Any:
        return self.output(self.body(x).mean(dim=(2, 3)))


class ResNetBlock(nn.Module):
    """Two convolutions with batch normalization, beside a shortcut."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        stride = 1 if inputs == outputs else 2
        first = (nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs))
        second = (nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs))
        self.body = row(*first, nn.ReLU(), *second)
        turned = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
        self.shortcut = nn.Identity() if inputs == outputs else turned

    def forward(self, x: Any) -> Any:
        return functional.relu(self.body(x) + self.shortcut(x))


class ResNet20(nn.Module):
    """A classifier of small pictures."""

    def __init__(self) -> None:
        super().__init__()
        layers = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
        channels = (16, 16, 16, 16, 32, 32, 32, 64, 64, 64)
        self.body = row(*layers, *(ResNetBlock(*sides) for sides in pairwise(channels)))
        self.output = nn.Linear(64, 10)

    def forward(self, x: Any) -> Any:
        return self.output(self.body(x).mean(dim=(2, 3)))


class Excitation(nn.Module):
    """Scales each channel by a number that is computed from the means of all."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        narrow, wide = nn.Linear(channels, channels // 4), nn.Linear(channels // 4, channels)
        self.dense = row(narrow, nn.ReLU(), wide)

    def forward(self, x: Any) -> Any:
        scale = torch.clip(self.dense(x.mean(dim=(2, 3))) / 6 + 0.5, 0, 1)
        return x * scale.reshape(*scale.shape, 1, 1)


class InvertedResidual(nn.Module):
    """A depthwise convolution between two that widen and narrow the channels."""

    def __init__(self, inputs: int, wide: int, outputs: int, size: int, stride: int) -> None:
        super().__init__()
        first = (nn.Conv2d(inputs, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.SiLU())
        depthwise = nn.Conv2d(wide, wide, size, stride, size // 2, groups=wide, bias=False)
        last = (nn.Conv2d(wide, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
        self.body = row(*first, depthwise, nn.BatchNorm2d(wide), nn.SiLU(), Excitation(wide), *last)
        self.beside = stride == 1 and inputs == outputs

    def forward(self, x: Any) -> Any:
        return x + self.body(x) if self.beside else self.body(x)


class InvertedResiduals(nn.Module):
    """A classifier of pictures for small machines."""

    def __init__(self) -> None:
        super().__init__()
        first = (InvertedResidual(16, 64, 24, 3, 2), InvertedResidual(24, 72, 24, 3, 1))
        second = (InvertedResidual(24, 72, 40, 5, 2), InvertedResidual(40, 120, 40, 5, 1))
        self.body = row(nn.Conv2d(3, 16, 3, 2, 1), *first, *second)
        self.output = nn.Linear(40, 10)

    def forward(self, x: Any) -> Any:
        return self.output(self.body(x).mean(dim=(2, 3)))


class StyleTransfer(nn.Module):
    """From a picture to one in another style, with instance normalization."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[Any] = [nn.ReflectionPad2d(4)]
        for inputs, outputs, size, stride in ((3, 16, 9, 1), (16, 32, 3, 2), (32, 32, 3, 1)):
            layers.append(nn.Conv2d(inputs, outputs, size, stride, int(size == 3)))
            layers += [nn.InstanceNorm2d(outputs, affine=True), nn.ReLU()]
        self.body = row(*layers)
        rise = (nn.Conv2d(32, 16, 3, 1, 1), nn.InstanceNorm2d(16, affine=True), nn.ReLU())
        self.output = row(*rise, nn.Conv2d(16, 3, 9, 1, 4))

    def forward(self, x: Any) -> Any:
        x = self.body(x)
        return self.output(functional.interpolate(x, scale_factor=2))


class Video(nn.Module):
    """A classifier of short films."""

    def __init__(self) -> None:
        super().__init__()
        layers = []
        for inputs, outputs in ((3, 16), (16, 32)):
            layers += [nn.Conv3d(inputs, outputs, 3, 1, 1), nn.BatchNorm3d(outputs)]
            layers += [nn.ReLU(), nn.MaxPool3d(2)]
        self.body = row(*layers, nn.Conv3d(32, 64, 3, 1, 1), nn.ReLU())
        self.output = nn.Linear(64, 10)

    def forward(self, x: Any) -> Any:
        return self.output(self.body(x).mean(dim=(2, 3, 4)))


class WaveNetBlock(nn.Module):
    """A gated convolution that reads this moment and an earlier one, beside a shortcut."""

    def __init__(self, channels: int, distance: int) -> None:
        super().__init__()
        self.channels, self.distance = channels, distance
        self.gates = nn.Conv1d(channels, 2 * channels, 2, dilation=distance)
        self.output = nn.Conv1d(channels, channels, 1)

    def forward(self, x: Any) -> Any:
        gates = self.gates(functional.pad(x, (self.distance, 0)))
        value, gate = gates[:, : self.channels], gates[:, self.channels :]
        return x + self.output(torch.tanh(value) * torch.sigmoid(gate))


class WaveNet(nn.Module):
    """Predicts each sample of a sound from those before it."""

    def __init__(self) -> None:
        super().__init__()
        self.samples = nn.Embedding(256, 64)
        self.blocks = row(*(WaveNetBlock(64, 2**level) for level in range(8)))
        self.output = nn.Conv1d(64, 256, 1)

    def forward(self, samples: Any) -> Any:
        x = self.blocks(self.samples(samples).swapaxes(1, 2))
        return self.output(functional.relu(x)).swapaxes(1, 2)


class TextConvolutions(nn.Module):
    """A classifier of sequences by their most striking groups of 3, 4 and 5 words."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(5000, 100)
        self.groups = row(*(row(nn.Conv1d(100, 100, size), nn.ReLU()) for size in (3, 4, 5)))
        self.output = nn.Linear(300, 2)

    def forward(self, words: Any) -> Any:
        x = self.words(words).swapaxes(1, 2)
        found = [group(x).amax(dim=2) for group in self.groups]
        return self.output(torch.concatenate(found, dim=1))


class MixerBlock(nn.Module):
    """Two dense layers along the patches, and two along the channels."""

    def __init__(self, patches: int, channels: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(channels)
        wide, narrow = nn.Linear(patches, 2 * patches), nn.Linear(2 * patches, patches)
        self.along = row(wide, nn.GELU(), narrow)
        wide, narrow = nn.Linear(channels, 2 * channels), nn.Linear(2 * channels, channels)
        self.across = row(nn.LayerNorm(channels), wide, nn.GELU(), narrow)

    def forward(self, x: Any) -> Any:
        x = x + self.along(self.norm(x).swapaxes(1, 2)).swapaxes(1, 2)
        return x + self.across(x)


class Mixer(nn.Module):
    """A classifier of pictures of dense layers only."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 128, 4, 4)
        self.blocks = row(*(MixerBlock(64, 128) for _ in range(4)))
        self.output = nn.Linear(128, 10)

    def forward(self, x: Any) -> Any:
        x = self.patches(x).reshape(x.shape[0], 128, 64).swapaxes(1, 2)
        return self.output(self.blocks(x).mean(dim=1))


class BidirectionalGRU(nn.Module):
    """A classifier of sequences that are read in both directions."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(2000, 128)
        self.layers = nn.GRU(128, 128, 2, batch_first=True, bidirectional=True)
        self.output = nn.Linear(256, 20)

    def forward(self, words: Any) -> Any:
        return self.output(self.layers(self.words(words))[0].mean(dim=1))


class GraphConvolutions(nn.Module):
    """A classifier of the nodes of a graph, which send messages along the edges."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = row(nn.Linear(128, 64), nn.Linear(64, 64))
        self.output = nn.Linear(64, 10)

    def forward(self, x: Any, source: Any, target: Any) -> Any:
        for layer in self.layers:
            messages, nothing = layer(x)[source], torch.zeros((x.shape[0], 64))
            x = functional.relu(nothing.index_add(0, target, messages))
        return self.output(x)


class Recommender(nn.Module):
    """Rates pairs of a user and a thing."""

    def __init__(self) -> None:
        super().__init__()
        self.users = nn.Embedding(100_000, 32)
        self.things = nn.Embedding(50_000, 32)
        first = (nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU())
        self.dense = row(*first, nn.Linear(64, 1))

    def forward(self, users: Any, things: Any) -> Any:
        return self.dense(torch.concatenate([self.users(users), self.things(things)], dim=1))


class DecoderLayer(nn.Module):
    """A transformer's layer for one token, with the keys and values of those before it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.project = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)
        wide, narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dense = row(nn.LayerNorm(width), wide, nn.GELU(), narrow)

    def forward(self, x: Any, keys: Any, values: Any) -> Any:
        batch, length, width = x.shape
        parts = self.project(self.norm(x))
        parts = parts.reshape(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        keys = torch.concatenate([keys, key], dim=2)
        values = torch.concatenate([values, value], dim=2)
        found = functional.scaled_dot_product_attention(query, keys, values)
        x = x + self.output(found.swapaxes(1, 2).reshape(x.shape))
        return x + self.dense(x), keys, values


class Decoder(nn.Module):
    """The next token of one sequence, and the keys and values with those of this token."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = DecoderLayer(256, 8), DecoderLayer(256, 8)
        self.output = row(nn.LayerNorm(256), nn.Linear(256, 5000))

    def forward(self, x: Any, keys: Any, values: Any) -> Any:
        x, *first = self.first(x, keys[0], values[0])
        x, *second = self.second(x, keys[1], values[1])
        return [self.output(x), *first, *second]

"""The networks of bench_step in PyTorch, for the comparison: the same layers as worker/engine/models, written as their
users write them."""
import torch
from torch import nn

# Input of one sample and number of classes.
SHAPES = {"mlp": ((1, 28, 28), 10), "mlp4m": ((1, 28, 28), 10), "convnet": ((1, 28, 28), 10),
          "convnet_bn": ((1, 28, 28), 10),
          "resnet20": ((3, 32, 32), 10), "resnet18": ((3, 32, 32), 10), "wrn-16-4": ((3, 32, 32), 10),
          "wrn-28-10": ((3, 32, 32), 10), "googlenet": ((3, 32, 32), 10), "alexnet": ((3, 224, 224), 1000),
          "resnet50": ((3, 224, 224), 1000), "smoke": ((3, 8, 8), 10)}
# Networks that read tokens have: layers, heads, width, context, vocabulary.
GPT2 = {"gpt2": (12, 12, 768, 1024, 50257), "gpt2-small": (4, 4, 128, 64, 65), "gpt2-smoke": (1, 2, 16, 8, 11)}


def conv_norm(inputs, outputs, kernel, stride=1, relu=True, bias=False):
    layers = [nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=bias), nn.BatchNorm2d(outputs)]
    return nn.Sequential(*layers, *([nn.ReLU(inplace=True)] if relu else []))


class Block(nn.Module):
    """A residual block: basic, or a bottleneck of four times the width."""

    def __init__(self, inputs, width, stride, bottleneck):
        super().__init__()
        outputs = width * 4 if bottleneck else width
        if bottleneck:
            self.body = nn.Sequential(conv_norm(inputs, width, 1), conv_norm(width, width, 3, stride),
                                      conv_norm(width, outputs, 1, relu=False))
        else:
            self.body = nn.Sequential(conv_norm(inputs, width, 3, stride), conv_norm(width, width, 3, relu=False))
        changes = stride != 1 or inputs != outputs
        self.shortcut = conv_norm(inputs, outputs, 1, stride, relu=False) if changes else nn.Identity()

    def forward(self, x):
        return torch.relu_(self.body(x) + self.shortcut(x))


class WideBlock(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.norm1, self.norm2 = nn.BatchNorm2d(inputs), nn.BatchNorm2d(outputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if inputs != outputs else None

    def forward(self, x):
        seen = torch.relu_(self.norm1(x))
        y = self.conv2(torch.relu_(self.norm2(self.conv1(seen))))
        return y + (x if self.shortcut is None else self.shortcut(seen))


class Inception(nn.Module):
    def __init__(self, inputs, ones, reduce3, three, reduce5, five, pool):
        super().__init__()

        def conv(i, o, kernel):
            return conv_norm(i, o, kernel, bias=True)

        self.branches = nn.ModuleList([
            conv(inputs, ones, 1), nn.Sequential(conv(inputs, reduce3, 1), conv(reduce3, three, 3)),
            nn.Sequential(conv(inputs, reduce5, 1), conv(reduce5, five, 3), conv(five, five, 3)),
            nn.Sequential(nn.MaxPool2d(3, 1, 1), conv(inputs, pool, 1))])

    def forward(self, x):
        return torch.cat([branch(x) for branch in self.branches], 1)


def head(channels, classes):
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)]


def resnet(width, blocks, bottleneck, imagenet, classes):
    layers = [conv_norm(3, width, 7, 2), nn.MaxPool2d(3, 2, 1)] if imagenet else [conv_norm(3, width, 3)]
    inputs = width
    for stage, count in enumerate(blocks):
        for i in range(count):
            layers.append(Block(inputs, width << stage, 2 if stage > 0 and i == 0 else 1, bottleneck))
            inputs = (width << stage) * (4 if bottleneck else 1)
    return nn.Sequential(*layers, *head(inputs, classes))


def wide_resnet(depth, width):
    layers, inputs = [nn.Conv2d(3, 16, 3, 1, 1, bias=False)], 16
    for stage in range(3):
        for i in range((depth - 4) // 6):
            layers.append(WideBlock(inputs, (16 * width) << stage, 2 if stage > 0 and i == 0 else 1))
            inputs = (16 * width) << stage
    return nn.Sequential(*layers, nn.BatchNorm2d(inputs), nn.ReLU(inplace=True), *head(inputs, 10))


def googlenet():
    stages = [[(64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64)],
              [(192, 96, 208, 16, 48, 64), (160, 112, 224, 24, 64, 64), (128, 128, 256, 24, 64, 64),
               (112, 144, 288, 32, 64, 64), (256, 160, 320, 32, 128, 128)],
              [(256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128)]]
    layers, inputs = [conv_norm(3, 192, 3, bias=True)], 192
    for stage, modules in enumerate(stages):
        layers += [nn.MaxPool2d(3, 2, 1)] if stage > 0 else []
        for widths in modules:
            layers.append(Inception(inputs, *widths))
            inputs = widths[0] + widths[2] + widths[4] + widths[5]
    return nn.Sequential(*layers, *head(inputs, 10))


def alexnet():
    def conv(i, o, kernel, stride=1, padding=0):
        return [nn.Conv2d(i, o, kernel, stride, padding), nn.ReLU(inplace=True)]

    return nn.Sequential(
        *conv(3, 64, 11, 4, 2), nn.MaxPool2d(3, 2), *conv(64, 192, 5, 1, 2), nn.MaxPool2d(3, 2),
        *conv(192, 384, 3, 1, 1), *conv(384, 256, 3, 1, 1), *conv(256, 256, 3, 1, 1), nn.MaxPool2d(3, 2), nn.Flatten(),
        nn.Dropout(), nn.Linear(9216, 4096), nn.ReLU(inplace=True),
        nn.Dropout(), nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Linear(4096, 1000))


def small(net):
    if net in ("mlp", "mlp4m"):
        first, second = (128, 64) if net == "mlp" else (1600, 1600)
        return nn.Sequential(nn.Flatten(), nn.Linear(784, first), nn.ReLU(), nn.Linear(first, second), nn.ReLU(),
                             nn.Linear(second, 10))
    norm = net in ("convnet_bn", "smoke")
    widths, features = ((3, 8, 8), 8 * 4) if net == "smoke" else ((1, 32, 64), 64 * 49)
    layers = []
    for inputs, outputs in zip(widths, widths[1:]):
        layers.append(nn.Conv2d(inputs, outputs, 3, padding=1, bias=not norm))
        layers += [nn.BatchNorm2d(outputs)] if norm else []
        layers += [nn.ReLU(inplace=True), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(features, 10))


class GptBlock(nn.Module):
    def __init__(self, heads, width):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))

    def attention(self, x):
        rows, length, width = x.shape
        q, k, v = (part.view(rows, length, self.heads, width // self.heads).transpose(1, 2)
                   for part in self.qkv(x).split(width, dim=2))
        if hasattr(nn.functional, "scaled_dot_product_attention"):
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.transpose(-2, -1) / (width // self.heads) ** 0.5
            hidden = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
            y = scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v
        return self.out(y.transpose(1, 2).reshape(rows, length, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Gpt2(nn.Module):
    def __init__(self, layers, heads, width, context, vocabulary):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(GptBlock(heads, width) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        for weight in (self.tokens.weight, self.positions.weight):
            nn.init.normal_(weight, std=0.02)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        return self.head(self.norm(self.blocks(x)))


def make_batch(net, rows, device):
    """Made-up inputs and labels for a network."""
    if net in GPT2:
        *_, context, vocabulary = GPT2[net]
        return tuple(torch.randint(0, vocabulary, (rows, context), device=device) for _ in range(2))
    shape, classes = SHAPES[net]
    return torch.randn(rows, *shape, device=device), torch.randint(0, classes, (rows,), device=device)


def build(net):
    if net in GPT2:
        return Gpt2(*GPT2[net])
    builders = {"resnet20": lambda: resnet(16, (3, 3, 3), False, False, 10),
                "resnet18": lambda: resnet(64, (2, 2, 2, 2), False, False, 10),
                "resnet50": lambda: resnet(64, (3, 4, 6, 3), True, True, 1000),
                "wrn-10-1": lambda: wide_resnet(10, 1), "wrn-16-1": lambda: wide_resnet(16, 1),
                "wrn-16-4": lambda: wide_resnet(16, 4), "wrn-28-10": lambda: wide_resnet(28, 10),
                "googlenet": googlenet, "alexnet": alexnet}
    return builders[net]() if net in builders else small(net)

// Ops that look at one element, or one pixel, at a time; changes of layout.
#include "worker/engine/backend/cuda/compiler.h"
#include "worker/engine/graph/dropout.h"

namespace trainyard::engine::cuda {
namespace {

Unary UnaryOf(const Node& node) {
  switch (node.op) {
    case OpKind::kRelu:
    case OpKind::kReluGradient:
      return Unary::kRelu;
    case OpKind::kTanh:
    case OpKind::kTanhGradient:
      return Unary::kTanh;
    case OpKind::kSigmoid:
    case OpKind::kSigmoidGradient:
      return Unary::kSigmoid;
    default:
      return node.layer<layers::Gelu>().tanh ? Unary::kGeluTanh : Unary::kGelu;
  }
}

}  // namespace

void Compiler::LowerElementwise(const Node& node) {
  const ValueId output = node.outputs[0];
  const Place x = PlaceOf(node.inputs[0]);
  const Place y = MakeOutput(node);
  const Unary op = UnaryOf(node);
  const int64_t pixels = Pixels(output);
  const int64_t channels = Channels(output);
  const bool clears = ClearsPadding(y, output);
  EmitKernel(node,
             [=, program = &program_](const Enqueue& how) {
               UnaryForward(op, program->At(x), program->At(y), pixels, channels, clears,
                            how.stream);
             },
             {x.buffer, y.buffer});
}

void Compiler::LowerElementwiseGradient(const Node& node) {
  const ValueId output = node.outputs[0];
  const Place dy = PlaceOf(node.inputs[0]);
  const Place saved = PlaceOf(node.inputs[1]);
  const Place dx = MakeOutput(node);
  const Unary op = UnaryOf(node);
  const int64_t pixels = Pixels(output);
  const int64_t channels = Channels(output);
  const bool clears = ClearsPadding(dx, output);
  EmitKernel(node,
             [=, program = &program_](const Enqueue& how) {
               UnaryGradient(op, program->At(dy), program->At(saved), program->At(dx), pixels,
                             channels, how.stream, clears);
             },
             {dy.buffer, saved.buffer, dx.buffer});
}

void Compiler::LowerAdd(const Node& node) {
  const ValueId output = node.outputs[0];
  const Place a = PlaceOf(node.inputs[0]);
  const Place b = PlaceOf(node.inputs[1]);
  const Place y = MakeOutput(node);
  const int64_t pixels = Pixels(output);
  const int64_t channels = Channels(output);
  const bool clears = ClearsPadding(y, output);
  EmitKernel(node,
             [=, program = &program_](const Enqueue& how) {
               Add(program->At(a), program->At(b), program->At(y), pixels, channels, how.stream,
                   clears);
             },
             {a.buffer, b.buffer, y.buffer});
}

void Compiler::LowerDropout(const Node& node) {
  const ValueId output = node.outputs[0];
  const Place x = PlaceOf(node.inputs[0]);
  const Place y = MakeOutput(node);
  const uint32_t layer = node.dropout().layer;
  const uint32_t threshold = DropoutThreshold(node.dropout());
  const auto scale = static_cast<float>(1 / (1 - node.dropout().rate));
  const int64_t pixels = PixelsPerRow(output);
  const int64_t channels = Channels(output);
  const int64_t rows = rows_;
  const bool clears = ClearsPadding(y, output);
  // Elements of a sequence are counted as they lie, those of an image channel by channel.
  const bool counts_by_pixel = !IsImage(output);
  EmitKernel(node,
             [=, program = &program_, state = state_](const Enqueue& how) {
               Dropout(program->At(x), program->At(y), rows, pixels, channels, layer, threshold,
                       scale, state.control, how.stream, clears, counts_by_pixel);
             },
             {x.buffer, y.buffer});
}

void Compiler::LowerLrn(const Node& node) {
  const bool is_gradient = node.op == OpKind::kLrnGradient;
  const ValueId output = node.outputs[0];
  const Place first = PlaceOf(node.inputs[0]);
  const Place x = is_gradient ? PlaceOf(node.inputs[1]) : first;
  const Place y = MakeOutput(node);
  const LrnParameters lrn = {node.layer<layers::Lrn>().size,
                             static_cast<float>(node.layer<layers::Lrn>().alpha),
                             static_cast<float>(node.layer<layers::Lrn>().beta),
                             static_cast<float>(node.layer<layers::Lrn>().k)};
  const int64_t pixels = Pixels(output);
  const int64_t channels = Channels(output);
  const bool clears = ClearsPadding(y, output);
  EmitKernel(node,
             [=, program = &program_](const Enqueue& how) {
               if (is_gradient) {
                 LrnGradient(lrn, program->At(first), program->At(x), program->At(y), pixels,
                             channels, how.stream, clears);
               } else {
                 LrnForward(lrn, program->At(x), program->At(y), pixels, channels, how.stream,
                            clears);
               }
             },
             {first.buffer, x.buffer, y.buffer});
}

// One pixel needs no change; a sequence lies as its features do.
void Compiler::LowerFlatten(const Node& node) {
  const ValueId output = node.outputs[0];
  const ValueId input = node.inputs[0];
  const Place x = PlaceOf(input);
  if (PixelsPerRow(input) == 1 || !IsImage(input)) {
    Place flat = x;
    if (PixelsPerRow(input) > 1) flat.stride = Channels(output);
    SharePlace(output, flat);
    return;
  }
  const Place y = MakePlace(output, x.type);
  const ImageShape shape = Image(input);
  EmitKernel(node,
             [=, program = &program_](const Enqueue& how) {
               FlattenImages(program->At(x), program->At(y), shape, how.stream);
             },
             {x.buffer, y.buffer});
}

void Compiler::LowerFlattenGradient(const Node& node) {
  const ValueId output = node.outputs[0];
  const Place dy = PlaceOf(node.inputs[0]);
  const bool fits = PixelsPerRow(output) == 1
                        ? !IsImage(output) || dy.stride >= PaddedChannels(Channels(output), dy.type)
                        : !IsImage(output) && dy.stride == Channels(node.inputs[0]);
  if (fits && (PixelsPerRow(output) > 1 || dy.stride == Channels(output) || !IsImage(output))) {
    Place home = dy;
    if (PixelsPerRow(output) > 1) home.stride = Channels(output);
    SharePlace(output, home);
    return;
  }
  const Place dx = MakePlace(output, target_.type);
  const int64_t pixels = Pixels(output);
  const int64_t channels = Channels(output);
  if (!IsImage(output)) {
    // Features of padded rows: position by position.
    const int64_t positions = PixelsPerRow(output);
    const int64_t rows = rows_;
    EmitKernel(node,
               [=, program = &program_](const Enqueue& how) {
                 for (int64_t t = 0; t < positions; ++t) {
                   View from = program->At(dy);
                   View to = program->At(dx);
                   from.data =
                       static_cast<std::byte*>(from.data) + t * channels * SizeOf(from.type);
                   to.data = static_cast<std::byte*>(to.data) + t * channels * SizeOf(to.type);
                   to.stride = positions * channels;
                   Copy(from, to, rows, channels, false, how.stream);
                 }
               },
               {dy.buffer, dx.buffer});
    return;
  }
  const ImageShape shape = Image(output);
  const bool clears = ClearsPadding(dx, output);
  EmitKernel(node,
             [=, program = &program_](const Enqueue& how) {
               if (shape.height * shape.width == 1) {
                 Copy(program->At(dy), program->At(dx), pixels, channels, clears, how.stream);
               } else {
                 UnflattenImages(program->At(dy), program->At(dx), shape, clears, how.stream);
               }
             },
             {dy.buffer, dx.buffer});
}

void Compiler::LowerConcat(const Node& node) {
  const ValueId output = node.outputs[0];
  if (!places_.contains(output)) MakePlace(output, target_.type);
  const Place y = PlaceOf(output);
  struct Copied {
    Place from, to;
    int64_t channels;
  };
  std::vector<Copied> parts;
  Buffers buffers = {y.buffer};
  int64_t first_channel = 0;
  for (const ValueId input : node.inputs) {
    const bool lies_there = parts_.contains(input);
    Place to = y;
    to.offset += first_channel;
    first_channel += Channels(input);
    if (!lies_there) {
      parts.push_back({PlaceOf(input), to, Channels(input)});
      buffers.push_back(PlaceOf(input).buffer);
    }
  }
  if (parts.empty()) return;
  const int64_t pixels = Pixels(output);
  // Padded ones have no part in place.
  const bool clears = ClearsPadding(y, output);
  const int64_t bytes = pixels * y.stride * SizeOf(y.type);
  EmitKernel(
      node,
      [=, program = &program_](const Enqueue& how) {
        if (clears) {
          (void)cudaMemsetAsync(program->At(y).data, 0, static_cast<size_t>(bytes), how.stream);
        }
        for (const Copied& part : parts) {
          Copy(program->At(part.from), program->At(part.to), pixels, part.channels, false,
               how.stream);
        }
      },
      buffers);
}

void Compiler::LowerSlice(const Node& node) {
  const ValueId output = node.outputs[0];
  const int64_t vector = kVectorBytes / SizeOf(target_.type);
  Place from = PlaceOf(node.inputs[0]);
  from.offset += node.slice().first_channel;
  const bool is_aligned =
      node.slice().first_channel % vector == 0 && Channels(output) % vector == 0;
  if (node.slice().is_view && is_aligned) {
    SharePlace(output, from);
    return;
  }
  const Place to = MakePlace(output, target_.type);
  const int64_t pixels = Pixels(output);
  const int64_t channels = Channels(output);
  const bool clears = ClearsPadding(to, output);
  EmitKernel(node,
             [=, program = &program_](const Enqueue& how) {
               Copy(program->At(from), program->At(to), pixels, channels, clears, how.stream);
             },
             {from.buffer, to.buffer});
}

}  // namespace trainyard::engine::cuda

// Lowers ops that look at one element at a time, those that move nothing, and the ends of stages,
// to our own kernels, in whatever layout the input has.
#include <algorithm>

#include "worker/engine/backend/cpu/lower_ops.h"
#include "worker/engine/backend/cpu/parallel.h"

namespace trainyard::engine::cpu {
namespace {

template <class T>
using Unary = void (*)(const T* x, T* y, int64_t count);
template <class T>
using Binary = void (*)(const T* dy, const T* other, T* dx, int64_t count);

template <class T>
Unary<T> ForwardKernel(const Kernels<T>& kernels, const Node& node) {
  switch (node.op) {
    case OpKind::kRelu:
      return kernels.relu;
    case OpKind::kTanh:
      return kernels.tanh;
    case OpKind::kSigmoid:
      return kernels.sigmoid;
    case OpKind::kGelu:
      return node.layer<layers::Gelu>().tanh ? kernels.gelu_tanh : kernels.gelu;
    default:
      CheckFailed(__FILE__, __LINE__, "no element-wise op: " + node.name);
  }
}

template <class T>
Binary<T> GradientKernel(const Kernels<T>& kernels, const Node& node) {
  switch (node.op) {
    case OpKind::kReluGradient:
      return kernels.relu_gradient;
    case OpKind::kTanhGradient:
      return kernels.tanh_gradient;
    case OpKind::kSigmoidGradient:
      return kernels.sigmoid_gradient;
    case OpKind::kGeluGradient:
      return node.layer<layers::Gelu>().tanh ? kernels.gelu_tanh_gradient : kernels.gelu_gradient;
    default:
      CheckFailed(__FILE__, __LINE__, "no element-wise gradient: " + node.name);
  }
}

// Zeroes the channels that only fill the last block. `x` has this layout.
template <class T>
void ClearPadding(const Layout& layout, int64_t rows, T* x) {
  const int64_t used = layout.channels % layout.block;
  if (used == 0) {
    return;
  }
  for (int64_t n = 0; n < rows; ++n) {
    T* last = x + (n + 1) * layout.elements() - layout.plane() * layout.block;
    for (int64_t p = 0; p < layout.plane(); ++p) {
      std::fill(last + p * layout.block + used, last + (p + 1) * layout.block, T{});
    }
  }
}

void LowerElementwise(Lowering& lowering, const Node& node) {
  const Layout home = lowering.Stored(lowering.layout(node.inputs[0]));
  lowering.SetLayout(node.outputs[0], home);
  const BufferId x = lowering.In(node.inputs[0], home);
  const BufferId y = lowering.OutputBuffer(node);
  const int64_t elements = lowering.Elements(node.inputs[0]);
  // The other functions map zeros to zeros.
  const bool spoils_padding = node.op == OpKind::kSigmoid;
  const int64_t rows = lowering.rows();
  const int threads = lowering.threads();
  const Node which = node;
  Program* program = &lowering.program();
  auto run = [=]<class T>(RunState&, const Kernels<T>& kernels) {
    const Unary<T> kernel = ForwardKernel(kernels, which);
    const T* from = program->ptr<T>(x);
    T* to = program->ptr<T>(y);
    ParallelChunks(threads, elements,
                   [&](int64_t begin, int64_t count) { kernel(from + begin, to + begin, count); });
    if (spoils_padding) {
      ClearPadding(home, rows, to);
    }
  };
  lowering.EmitKernels(node, run, {x, y});
}

void LowerElementwiseGradient(Lowering& lowering, const Node& node) {
  const Layout home = lowering.Stored(lowering.layout(node.inputs[1]));
  lowering.SetLayout(node.outputs[0], home);
  const BufferId dy = lowering.In(node.inputs[0], home);
  const BufferId y = lowering.In(node.inputs[1], home);
  const BufferId dx = lowering.OutputBuffer(node);
  const int64_t elements = lowering.Elements(node.inputs[1]);
  const int threads = lowering.threads();
  const Node which = node;
  Program* program = &lowering.program();
  auto run = [=]<class T>(RunState&, const Kernels<T>& kernels) {
    const Binary<T> kernel = GradientKernel(kernels, which);
    const T* g = program->ptr<T>(dy);
    const T* out = program->ptr<T>(y);
    T* to = program->ptr<T>(dx);
    ParallelChunks(threads, elements, [&](int64_t begin, int64_t count) {
      kernel(g + begin, out + begin, to + begin, count);
    });
  };
  lowering.EmitKernels(node, run, {dy, y, dx});
}

}  // namespace

void LowerRelu(Lowering& lowering, const Node& node) {
  LowerElementwise(lowering, node);
}

void LowerTanh(Lowering& lowering, const Node& node) {
  LowerElementwise(lowering, node);
}

void LowerSigmoid(Lowering& lowering, const Node& node) {
  LowerElementwise(lowering, node);
}

void LowerGelu(Lowering& lowering, const Node& node) {
  LowerElementwise(lowering, node);
}

void LowerReluGradient(Lowering& lowering, const Node& node) {
  LowerElementwiseGradient(lowering, node);
}

void LowerTanhGradient(Lowering& lowering, const Node& node) {
  LowerElementwiseGradient(lowering, node);
}

void LowerSigmoidGradient(Lowering& lowering, const Node& node) {
  LowerElementwiseGradient(lowering, node);
}

void LowerGeluGradient(Lowering& lowering, const Node& node) {
  LowerElementwiseGradient(lowering, node);
}

void LowerFlatten(Lowering& lowering, const Node& node) {
  lowering.ShareInput(node, lowering.layout(node.inputs[0]));
}

// A blocked layout can only come from a value that was flattened, and then has its shape.
void LowerFlattenGradient(Lowering& lowering, const Node& node) {
  const Layout& home = lowering.layout(node.inputs[0]);
  const Layout plain = PlainLayout(lowering.value(node.outputs[0]).shape).As(home.type);
  lowering.ShareInput(node, home.block > 1 ? home : plain);
}

void LowerAdd(Lowering& lowering, const Node& node) {
  // Uses the layout of the overwritten, or else the first, input.
  const size_t leader = node.OverwrittenBy(0) > 0 ? 1 : 0;
  const Layout home = lowering.Stored(lowering.layout(node.inputs[leader]));
  lowering.SetLayout(node.outputs[0], home);
  const BufferId a = lowering.In(node.inputs[leader], home);
  const BufferId b = lowering.In(node.inputs[1 - leader], home);
  const BufferId y = lowering.OutputBuffer(node);
  const int64_t elements = lowering.Elements(node.outputs[0]);
  const int threads = lowering.threads();
  Program* program = &lowering.program();
  auto run = [=]<class T>(RunState&, const Kernels<T>& kernels) {
    ParallelChunks(threads, elements, [&](int64_t begin, int64_t count) {
      kernels.add(program->ptr<T>(a) + begin, program->ptr<T>(b) + begin,
                  program->ptr<T>(y) + begin, count);
    });
  };
  lowering.EmitKernels(node, run, {a, b, y});
}

// Values pass to another stage as plain floats, whatever type this stage computes in.
void LowerStageOutput(Lowering& lowering, const Node& node) {
  lowering.program().stage_output_block = lowering.layout(node.inputs[0]).block;
  const BufferId x =
      lowering.In(node.inputs[0], lowering.layout(node.inputs[0]).Plain().As(NumberType::kF32));
  const int64_t count = lowering.value(node.inputs[0]).Elements(lowering.rows());
  Program* program = &lowering.program();
  lowering.EmitCall(
      node,
      [=](RunState& state) { std::copy_n(program->ptr<float>(x), count, state.stage_output); },
      {x});
}

void LowerStageOutputGradient(Lowering& lowering, const Node& node) {
  lowering.SetLayout(node.outputs[0], PlainLayout(lowering.value(node.outputs[0]).shape));
  const BufferId dx = lowering.BufferOf(node.outputs[0]);
  const int64_t count = lowering.value(node.outputs[0]).Elements(lowering.rows());
  Program* program = &lowering.program();
  lowering.EmitCall(node,
                    [=](RunState& state) {
                      std::copy_n(state.stage_output_gradient, count, program->ptr<float>(dx));
                    },
                    {dx});
}

}  // namespace trainyard::engine::cpu

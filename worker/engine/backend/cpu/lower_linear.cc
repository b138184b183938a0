// Lowers linear to oneDNN's inner product. Each position of a sequence is a row.
//
// Weights stay plain, [out, in] or [in, out]: measured at batch 64, packed weights make the
// products up to 1.5 times faster and cost more than that to pack and unpack. Only after a flatten
// of blocked planes do they take the same blocks as the input, so that the activations need not be
// reordered.
#include <algorithm>
#include <vector>

#include "worker/engine/backend/cpu/lower_ops.h"
#include "worker/engine/backend/cpu/parallel.h"

namespace trainyard::engine::cpu {
namespace {

using Desc = dnnl::memory::desc;
using Tag = dnnl::memory::format_tag;

dnnl::primitive_attr Attributes(bool relu) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (relu) {
    dnnl::post_ops post_ops;
    post_ops.append_eltwise(1.0f, dnnl::algorithm::eltwise_relu, 0.0f, 0.0f);
    attributes.set_post_ops(post_ops);
  }
  return attributes;
}

struct LinearFormats {
  Desc input, weight, plain_weight, bias, output;
  Desc weight_gradient;  // like `weight`, in floats
  bool is_plain = true;  // true if `weight` is plain, apart from its number type
  Layout input_layout;
};

// Returns the formats for this many rows.
LinearFormats ChooseLinear(Lowering& lowering, ValueId x, ValueId weight, ValueId y, int64_t rows) {
  LinearFormats formats;
  const Layout home = lowering.Stored(lowering.layout(x));
  const auto type = DataType(lowering.type());
  const bool is_transposed = lowering.value(weight).is_transposed;
  const Tag weight_tag = is_transposed ? Tag::io : Tag::oi;
  const int64_t in = lowering.value(weight).shape[is_transposed ? 0 : 1];
  const int64_t out = lowering.value(weight).shape[is_transposed ? 1 : 0];
  const int64_t vectors = rows * (ElementCount(lowering.value(y).shape) / out);
  // Padded channels would need padded weights, so those inputs are reordered.
  if (home.is_plain() || home.channels % home.block != 0 || is_transposed) {
    formats.input_layout = home.Plain();
    formats.input = Desc({vectors, in}, type, Tag::nc);
    formats.weight = Desc({out, in}, type, weight_tag);
    formats.plain_weight = Desc({out, in}, kF32, weight_tag);
    formats.weight_gradient = formats.plain_weight;
  } else {
    formats.input_layout = home;
    formats.input = Describe(home, rows);
    formats.weight = Describe(home, out);
    formats.plain_weight = Describe(home.Plain().As(NumberType::kF32), out);
    formats.weight_gradient = Describe(home.As(NumberType::kF32), out);
    formats.is_plain = false;
  }
  formats.bias = Desc({out}, kF32, Tag::x);
  formats.output = Desc({vectors, out}, type, Tag::nc);
  return formats;
}

// With fewer vectors than these, a part of a product would mostly pack the weights.
constexpr int64_t kVectorsOfPart = 256;
// With shorter sides than these, a tile of a weight gradient would mostly pack its inputs.
constexpr int64_t kSideOfTile = 128;

// Splits the rows of a product whose output has this shape in each row.
std::vector<RowPart> PartRows(const Lowering& lowering, const Node& node, const Shape& output) {
  const int64_t vectors = ElementCount(output) / output.back();
  return lowering.PartRows(node, (kVectorsOfPart + vectors - 1) / vectors);
}

// c += or = a^T b, row-major, with c [m, n], a [k, m] and b [k, n].
struct Product {
  int64_t m, n, k;
  int64_t tiles_down, tiles_across;

  // Cuts c into tiles that depend only on the shape, each of which one thread computes.
  static Product Of(const Lowering& lowering, int64_t m, int64_t n, int64_t k) {
    Product product = {m, n, k, 1, 1};
    const int64_t most =
        std::max(int64_t{1}, m / kSideOfTile) * std::max(int64_t{1}, n / kSideOfTile);
    int64_t tiles = lowering.PartsOf(2.0 * static_cast<double>(m * n * k), most);
    for (; tiles > 1; tiles /= 2) {
      const bool is_tall = m / product.tiles_down > n / product.tiles_across;
      (is_tall ? product.tiles_down : product.tiles_across) *= 2;
    }
    return product;
  }

  void Run(int threads, const float* a, const float* b, bool add, float* c) const {
    const int64_t height = (m + tiles_down - 1) / tiles_down;
    const int64_t width = (n + tiles_across - 1) / tiles_across;
    ParallelFor(threads, tiles_down * tiles_across, [&](int64_t tile) {
      const int64_t top = tile / tiles_across * height;
      const int64_t left = tile % tiles_across * width;
      if (top >= m || left >= n) return;
      const dnnl::status status =
          dnnl::sgemm('T', 'N', std::min(height, m - top), std::min(width, n - left), k, 1.0f,
                      a + top, m, b + left, n, add ? 1.0f : 0.0f, c + top * n + left, n);
      TY_CHECK(status == dnnl::status::success);
    });
  }
};

// Lowers the gradients of the weights and the bias, in floats, to sums whose order follows from the
// shape.
void LowerParameterGradientByTiles(Lowering& lowering, const Node& node,
                                   const LinearFormats& formats, bool is_transposed) {
  const BufferId dy = lowering.In(node.inputs[0], lowering.StoredPlain(node.inputs[0]));
  const BufferId x = lowering.In(node.inputs[1], formats.input_layout);
  std::vector<BufferId> buffers = {dy, x};
  const int64_t vectors = formats.output.dims()[0];
  const int64_t out = formats.output.dims()[1];
  const int64_t in = lowering.GradientEntry(node.outputs[0]).count / out;
  const Product product = is_transposed ? Product::Of(lowering, in, out, vectors)
                                        : Product::Of(lowering, out, in, vectors);
  float* const dweight = lowering.GradientSums(node.outputs[0]);
  float* const dbias = node.outputs.size() > 1 ? lowering.GradientSums(node.outputs[1]) : nullptr;
  BufferId blocked = kNoBuffer;
  Lowering::Arguments unpacked;
  if (!formats.is_plain) {
    blocked = lowering.AddScratch(in * out * int64_t{sizeof(float)});
    buffers.push_back(blocked);
    unpacked = {{DNNL_ARG_FROM, lowering.Memory(formats.weight_gradient, blocked)},
                {DNNL_ARG_TO, dnnl::memory(formats.plain_weight, lowering.engine(), dweight)}};
  }
  const Unpacking unpack(lowering.engine(), formats.weight_gradient, formats.plain_weight);
  const int threads = lowering.threads();
  const Kernels<float>* kernels = &BestKernels<float>();
  dnnl::stream stream = lowering.stream();
  Program* program = &lowering.program();
  auto run = [=](RunState& state) {
    const bool add = state.accumulate;
    const float* of_output = program->ptr<float>(dy);
    const float* of_input = program->ptr<float>(x);
    const float* a = is_transposed ? of_input : of_output;
    const float* b = is_transposed ? of_output : of_input;
    if (blocked == kNoBuffer) {
      product.Run(threads, a, b, add, dweight);
    } else {
      product.Run(threads, a, b, /*add=*/false, program->ptr<float>(blocked));
      unpack.Execute(stream, unpacked, add);
    }
    if (dbias == nullptr) return;
    ParallelChunks(threads, out, [&](int64_t begin, int64_t count) {
      if (!add) std::fill_n(dbias + begin, count, 0.0f);
      for (int64_t n = 0; n < vectors; ++n) {
        kernels->accumulate(of_output + n * out + begin, dbias + begin, count);
      }
    });
  };
  lowering.EmitCall(node, run, buffers);
}

}  // namespace

void LowerLinear(Lowering& lowering, const Node& node) {
  // Logits leave the sum of products as floats.
  const bool is_logits = node.outputs[0] == lowering.step().graph.logits;
  const NumberType type = is_logits ? NumberType::kF32 : lowering.type();
  const Layout y_layout = PlainLayout(lowering.value(node.outputs[0]).shape).As(type);
  lowering.SetLayout(node.outputs[0], y_layout);
  const bool has_bias = node.inputs.size() > 2;
  const auto kind = lowering.step().parameter_gradients.empty() ? dnnl::prop_kind::forward_inference
                                                                : dnnl::prop_kind::forward_training;
  const auto choose = [&](int64_t rows) {
    return ChooseLinear(lowering, node.inputs[0], node.inputs[1], node.outputs[0], rows);
  };
  const LinearFormats formats = choose(lowering.rows());
  const auto describe = [&](int64_t rows) {
    const LinearFormats of_rows = choose(rows);
    // For blocks of floats, oneDNN's own choice, transposed weights, is three times as fast as the
    // input's blocks. For bf16 it is no faster, and transposing takes as long as a whole step.
    const Desc weight = formats.is_plain || lowering.type() == NumberType::kBf16
                            ? of_rows.weight
                            : Desc(of_rows.weight.dims(), DataType(lowering.type()), Tag::any);
    const Desc output(of_rows.output.dims(), DataType(type), Tag::nc);
    const auto desc =
        has_bias
            ? dnnl::inner_product_forward::desc(kind, of_rows.input, weight, of_rows.bias, output)
            : dnnl::inner_product_forward::desc(kind, of_rows.input, weight, output);
    return dnnl::inner_product_forward::primitive_desc(desc, Attributes(node.relu),
                                                       lowering.engine());
  };
  const BufferId x = lowering.In(node.inputs[0], formats.input_layout);
  const BufferId y = lowering.BufferOf(node.outputs[0]);
  const auto arguments = [&](const auto& described, const RowPart& part) {
    Lowering::Arguments made = {
        {DNNL_ARG_SRC,
         lowering.Memory(described.src_desc(), x, part.begin * formats.input_layout.bytes())},
        {DNNL_ARG_WEIGHTS, lowering.Packed(lowering.Parameters({node.inputs[1]}),
                                           formats.plain_weight, described.weights_desc())},
        {DNNL_ARG_DST, lowering.Memory(described.dst_desc(), y, part.begin * y_layout.bytes())}};
    if (has_bias) {
      made.insert({DNNL_ARG_BIAS, dnnl::memory(formats.bias, lowering.engine(),
                                               lowering.Parameter(node.inputs[2]))});
    }
    return made;
  };
  lowering.EmitParts(
      node,
      MakeParts<dnnl::inner_product_forward>(
          PartRows(lowering, node, lowering.value(node.outputs[0]).shape), describe, arguments),
      {x, y});
}

void LowerLinearInputGradient(Lowering& lowering, const Node& node) {
  const ValueId output = node.outputs[0];
  const ValueId primal = lowering.value(output).primal;
  const auto choose = [&](int64_t rows) {
    return ChooseLinear(lowering, primal, node.inputs[1], node.inputs[0], rows);
  };
  const LinearFormats formats = choose(lowering.rows());
  const auto describe = [&](int64_t rows) {
    const LinearFormats of_rows = choose(rows);
    const dnnl::inner_product_forward::primitive_desc hint(
        {dnnl::prop_kind::forward_training, of_rows.input, of_rows.weight, of_rows.output},
        Attributes(false), lowering.engine());
    return dnnl::inner_product_backward_data::primitive_desc(
        {of_rows.input, of_rows.weight, of_rows.output}, Attributes(false), lowering.engine(),
        hint);
  };
  lowering.SetLayout(output, formats.input_layout);
  const Layout y_layout = lowering.StoredPlain(node.inputs[0]);
  const BufferId dy = lowering.In(node.inputs[0], y_layout);
  const BufferId dx = lowering.BufferOf(output);
  const auto arguments = [&](const auto& described, const RowPart& part) {
    return Lowering::Arguments{
        {DNNL_ARG_DIFF_DST,
         lowering.Memory(described.diff_dst_desc(), dy, part.begin * y_layout.bytes())},
        {DNNL_ARG_WEIGHTS, lowering.Packed(lowering.Parameters({node.inputs[1]}),
                                           formats.plain_weight, formats.weight)},
        {DNNL_ARG_DIFF_SRC, lowering.Memory(described.diff_src_desc(), dx,
                                            part.begin * formats.input_layout.bytes())}};
  };
  lowering.EmitParts(
      node,
      MakeParts<dnnl::inner_product_backward_data>(
          PartRows(lowering, node, lowering.value(node.inputs[0]).shape), describe, arguments),
      {dy, dx});
}

void LowerLinearParameterGradient(Lowering& lowering, const Node& node) {
  const ValueId weight = lowering.value(node.outputs[0]).primal;
  const LinearFormats formats =
      ChooseLinear(lowering, node.inputs[1], weight, node.inputs[0], lowering.rows());
  if (lowering.deterministic() && lowering.type() == NumberType::kF32) {
    return LowerParameterGradientByTiles(lowering, node, formats,
                                         lowering.value(weight).is_transposed);
  }
  const dnnl::inner_product_forward::primitive_desc hint(
      {dnnl::prop_kind::forward_training, formats.input, formats.weight, formats.output},
      Attributes(false), lowering.engine());
  const bool has_bias = node.outputs.size() > 1;
  const auto desc = has_bias
                        ? dnnl::inner_product_backward_weights::desc(
                              formats.input, formats.weight_gradient, formats.bias, formats.output)
                        : dnnl::inner_product_backward_weights::desc(
                              formats.input, formats.weight_gradient, formats.output);
  const dnnl::inner_product_backward_weights::primitive_desc primitive_desc(
      desc, Attributes(false), lowering.engine(), hint);
  const BufferId dy = lowering.In(node.inputs[0], lowering.StoredPlain(node.inputs[0]));
  const BufferId x = lowering.In(node.inputs[1], formats.input_layout);
  const PrimitivePart whole = {dnnl::inner_product_backward_weights(primitive_desc),
                               {{DNNL_ARG_DIFF_DST, lowering.Memory(formats.output, dy)},
                                {DNNL_ARG_SRC, lowering.Memory(formats.input, x)}},
                               primitive_desc.scratchpad_desc()};
  // In bf16 a deterministic step computes it on one thread.
  lowering.EmitParameterGradient(node, {whole}, {dy, x}, formats.weight_gradient,
                                 formats.plain_weight);
}

}  // namespace trainyard::engine::cpu

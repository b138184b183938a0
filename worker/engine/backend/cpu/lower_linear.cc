// linear by oneDNN's inner product; of a sequence, each position is a row of it.
//
// Weights stay plain, [out, in] or [in, out]: measured at batch 64, packed weights make the
// products up to 1.5 times faster and cost more than that to pack and unpack. Only after a flatten
// of blocked planes they take the same blocks as the input, so that the activations need not be
// reordered.
#include "worker/engine/backend/cpu/compiler.h"

namespace trainyard::engine::cpu {
namespace {

using Desc = dnnl::memory::desc;
using Tag = dnnl::memory::format_tag;
constexpr auto kF32 = dnnl::memory::data_type::f32;

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

}  // namespace

Compiler::LinearFormats Compiler::ChooseLinear(ValueId x, ValueId weight, ValueId y) const {
  LinearFormats formats;
  const Layout home = Stored(layout(x));
  const auto type = DataType(type_);
  const bool is_transposed = value(weight).is_transposed;
  const Tag weight_tag = is_transposed ? Tag::io : Tag::oi;
  const int64_t in = value(weight).shape[is_transposed ? 0 : 1];
  const int64_t out = value(weight).shape[is_transposed ? 1 : 0];
  const int64_t vectors = rows_ * (ElementCount(value(y).shape) / out);
  // Padded channels would need padded weights: those inputs are reordered.
  if (home.is_plain() || home.channels % home.block != 0 || is_transposed) {
    formats.input_layout = home.Plain();
    formats.input = Desc({vectors, in}, type, Tag::nc);
    formats.weight = Desc({out, in}, type, weight_tag);
    formats.plain_weight = Desc({out, in}, kF32, weight_tag);
    formats.weight_gradient = formats.plain_weight;
  } else {
    formats.input_layout = home;
    formats.input = Describe(home, rows_);
    formats.weight = Describe(home, out);
    formats.plain_weight = Describe(home.Plain().As(NumberType::kF32), out);
    formats.weight_gradient = Describe(home.As(NumberType::kF32), out);
    formats.is_plain = false;
  }
  formats.bias = Desc({out}, kF32, Tag::x);
  formats.output = Desc({vectors, out}, type, Tag::nc);
  return formats;
}

void Compiler::LowerLinear(const Node& node) {
  const LinearFormats formats = ChooseLinear(node.inputs[0], node.inputs[1], node.outputs[0]);
  // Logits leave the sum of products as floats.
  const bool is_logits = node.outputs[0] == step_.graph.logits;
  const NumberType type = is_logits ? NumberType::kF32 : type_;
  SetLayout(node.outputs[0], PlainLayout(value(node.outputs[0]).shape).As(type));
  const Desc output(formats.output.dims(), DataType(type), Tag::nc);
  const bool has_bias = node.inputs.size() > 2;
  const auto kind = step_.parameter_gradients.empty() ? dnnl::prop_kind::forward_inference
                                                      : dnnl::prop_kind::forward_training;
  // Over blocks of floats oneDNN's own choice, transposed weights, is three times as fast as the
  // input's. Of bf16 it is no faster, and transposing takes as long as a whole step.
  const Desc weight = formats.is_plain || type_ == NumberType::kBf16
                          ? formats.weight
                          : Desc(formats.weight.dims(), DataType(type_), Tag::any);
  const auto desc =
      has_bias
          ? dnnl::inner_product_forward::desc(kind, formats.input, weight, formats.bias, output)
          : dnnl::inner_product_forward::desc(kind, formats.input, weight, output);
  const dnnl::inner_product_forward::primitive_desc primitive_desc(desc, Attributes(node.relu),
                                                                   engine_);
  const BufferId x = In(node.inputs[0], formats.input_layout);
  const BufferId y = BufferOf(node.outputs[0]);
  std::vector<BufferId> buffers = {x, y};
  Arguments arguments = {
      {DNNL_ARG_SRC, Memory(formats.input, x)},
      {DNNL_ARG_WEIGHTS,
       Packed(Parameters({node.inputs[1]}), formats.plain_weight, primitive_desc.weights_desc())},
      {DNNL_ARG_DST, Memory(output, y)}};
  if (has_bias) {
    arguments.insert(
        {DNNL_ARG_BIAS, dnnl::memory(formats.bias, engine_, Parameter(node.inputs[2]))});
  }
  AddScratchpad(primitive_desc.scratchpad_desc(), arguments, buffers);
  const dnnl::inner_product_forward primitive(primitive_desc);
  dnnl::stream stream = stream_;
  EmitCall(
      node, [=](RunState&) { primitive.execute(stream, arguments); }, buffers);
}

void Compiler::LowerLinearInputGradient(const Node& node) {
  const ValueId output = node.outputs[0];
  const ValueId primal = value(output).primal;
  const LinearFormats formats = ChooseLinear(primal, node.inputs[1], node.inputs[0]);
  const dnnl::inner_product_forward::primitive_desc hint(
      {dnnl::prop_kind::forward_training, formats.input, formats.weight, formats.output},
      Attributes(false), engine_);
  const dnnl::inner_product_backward_data::primitive_desc primitive_desc(
      {formats.input, formats.weight, formats.output}, Attributes(false), engine_, hint);
  SetLayout(output, formats.input_layout);
  const BufferId dy = In(node.inputs[0], StoredPlain(node.inputs[0]));
  const BufferId dx = BufferOf(output);
  std::vector<BufferId> buffers = {dy, dx};
  Arguments arguments = {{DNNL_ARG_DIFF_DST, Memory(formats.output, dy)},
                         {DNNL_ARG_WEIGHTS, Packed(Parameters({node.inputs[1]}),
                                                   formats.plain_weight, formats.weight)},
                         {DNNL_ARG_DIFF_SRC, Memory(formats.input, dx)}};
  AddScratchpad(primitive_desc.scratchpad_desc(), arguments, buffers);
  const dnnl::inner_product_backward_data primitive(primitive_desc);
  dnnl::stream stream = stream_;
  EmitCall(
      node, [=](RunState&) { primitive.execute(stream, arguments); }, buffers);
}

void Compiler::LowerLinearParameterGradient(const Node& node) {
  const ValueId weight = value(node.outputs[0]).primal;
  const LinearFormats formats = ChooseLinear(node.inputs[1], weight, node.inputs[0]);
  const dnnl::inner_product_forward::primitive_desc hint(
      {dnnl::prop_kind::forward_training, formats.input, formats.weight, formats.output},
      Attributes(false), engine_);
  const bool has_bias = node.outputs.size() > 1;
  const auto desc = has_bias
                        ? dnnl::inner_product_backward_weights::desc(
                              formats.input, formats.weight_gradient, formats.bias, formats.output)
                        : dnnl::inner_product_backward_weights::desc(
                              formats.input, formats.weight_gradient, formats.output);
  const dnnl::inner_product_backward_weights::primitive_desc primitive_desc(desc, Attributes(false),
                                                                            engine_, hint);
  const BufferId dy = In(node.inputs[0], StoredPlain(node.inputs[0]));
  const BufferId x = In(node.inputs[1], formats.input_layout);
  std::vector<BufferId> buffers = {dy, x};
  Arguments arguments = {{DNNL_ARG_DIFF_DST, Memory(formats.output, dy)},
                         {DNNL_ARG_SRC, Memory(formats.input, x)}};
  AddScratchpad(primitive_desc.scratchpad_desc(), arguments, buffers);
  EmitParameterGradient(node, dnnl::inner_product_backward_weights(primitive_desc), arguments,
                        buffers, formats.weight_gradient, formats.plain_weight);
}

}  // namespace trainyard::engine::cpu

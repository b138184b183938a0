// Lowers linear to oneDNN's inner product. Each position of a sequence is a row.
//
// Weights stay plain, [out, in] or [in, out]: measured at batch 64, packed weights make the
// products up to 1.5 times faster and cost more than that to pack and unpack. Only after a flatten
// of blocked planes do they take the same blocks as the input, so that the activations need not be
// reordered.
#include "worker/engine/backend/cpu/lower_ops.h"

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

LinearFormats ChooseLinear(Lowering& lowering, ValueId x, ValueId weight, ValueId y) {
  LinearFormats formats;
  const Layout home = lowering.Stored(lowering.layout(x));
  const auto type = DataType(lowering.type());
  const bool is_transposed = lowering.value(weight).is_transposed;
  const Tag weight_tag = is_transposed ? Tag::io : Tag::oi;
  const int64_t in = lowering.value(weight).shape[is_transposed ? 0 : 1];
  const int64_t out = lowering.value(weight).shape[is_transposed ? 1 : 0];
  const int64_t vectors = lowering.rows() * (ElementCount(lowering.value(y).shape) / out);
  // Padded channels would need padded weights, so those inputs are reordered.
  if (home.is_plain() || home.channels % home.block != 0 || is_transposed) {
    formats.input_layout = home.Plain();
    formats.input = Desc({vectors, in}, type, Tag::nc);
    formats.weight = Desc({out, in}, type, weight_tag);
    formats.plain_weight = Desc({out, in}, kF32, weight_tag);
    formats.weight_gradient = formats.plain_weight;
  } else {
    formats.input_layout = home;
    formats.input = Describe(home, lowering.rows());
    formats.weight = Describe(home, out);
    formats.plain_weight = Describe(home.Plain().As(NumberType::kF32), out);
    formats.weight_gradient = Describe(home.As(NumberType::kF32), out);
    formats.is_plain = false;
  }
  formats.bias = Desc({out}, kF32, Tag::x);
  formats.output = Desc({vectors, out}, type, Tag::nc);
  return formats;
}

}  // namespace

void LowerLinear(Lowering& lowering, const Node& node) {
  const LinearFormats formats =
      ChooseLinear(lowering, node.inputs[0], node.inputs[1], node.outputs[0]);
  // Logits leave the sum of products as floats.
  const bool is_logits = node.outputs[0] == lowering.step().graph.logits;
  const NumberType type = is_logits ? NumberType::kF32 : lowering.type();
  lowering.SetLayout(node.outputs[0], PlainLayout(lowering.value(node.outputs[0]).shape).As(type));
  const Desc output(formats.output.dims(), DataType(type), Tag::nc);
  const bool has_bias = node.inputs.size() > 2;
  const auto kind = lowering.step().parameter_gradients.empty() ? dnnl::prop_kind::forward_inference
                                                                : dnnl::prop_kind::forward_training;
  // For blocks of floats, oneDNN's own choice, transposed weights, is three times as fast as the
  // input's blocks. For bf16 it is no faster, and transposing takes as long as a whole step.
  const Desc weight = formats.is_plain || lowering.type() == NumberType::kBf16
                          ? formats.weight
                          : Desc(formats.weight.dims(), DataType(lowering.type()), Tag::any);
  const auto desc =
      has_bias
          ? dnnl::inner_product_forward::desc(kind, formats.input, weight, formats.bias, output)
          : dnnl::inner_product_forward::desc(kind, formats.input, weight, output);
  const dnnl::inner_product_forward::primitive_desc primitive_desc(desc, Attributes(node.relu),
                                                                   lowering.engine());
  const BufferId x = lowering.In(node.inputs[0], formats.input_layout);
  const BufferId y = lowering.BufferOf(node.outputs[0]);
  std::vector<BufferId> buffers = {x, y};
  Lowering::Arguments arguments = {
      {DNNL_ARG_SRC, lowering.Memory(formats.input, x)},
      {DNNL_ARG_WEIGHTS, lowering.Packed(lowering.Parameters({node.inputs[1]}),
                                         formats.plain_weight, primitive_desc.weights_desc())},
      {DNNL_ARG_DST, lowering.Memory(output, y)}};
  if (has_bias) {
    arguments.insert({DNNL_ARG_BIAS, dnnl::memory(formats.bias, lowering.engine(),
                                                  lowering.Parameter(node.inputs[2]))});
  }
  lowering.AddScratchpad(primitive_desc.scratchpad_desc(), arguments, buffers);
  const dnnl::inner_product_forward primitive(primitive_desc);
  dnnl::stream stream = lowering.stream();
  lowering.EmitCall(
      node, [=](RunState&) { primitive.execute(stream, arguments); }, buffers);
}

void LowerLinearInputGradient(Lowering& lowering, const Node& node) {
  const ValueId output = node.outputs[0];
  const ValueId primal = lowering.value(output).primal;
  const LinearFormats formats = ChooseLinear(lowering, primal, node.inputs[1], node.inputs[0]);
  const dnnl::inner_product_forward::primitive_desc hint(
      {dnnl::prop_kind::forward_training, formats.input, formats.weight, formats.output},
      Attributes(false), lowering.engine());
  const dnnl::inner_product_backward_data::primitive_desc primitive_desc(
      {formats.input, formats.weight, formats.output}, Attributes(false), lowering.engine(), hint);
  lowering.SetLayout(output, formats.input_layout);
  const BufferId dy = lowering.In(node.inputs[0], lowering.StoredPlain(node.inputs[0]));
  const BufferId dx = lowering.BufferOf(output);
  std::vector<BufferId> buffers = {dy, dx};
  Lowering::Arguments arguments = {
      {DNNL_ARG_DIFF_DST, lowering.Memory(formats.output, dy)},
      {DNNL_ARG_WEIGHTS, lowering.Packed(lowering.Parameters({node.inputs[1]}),
                                         formats.plain_weight, formats.weight)},
      {DNNL_ARG_DIFF_SRC, lowering.Memory(formats.input, dx)}};
  lowering.AddScratchpad(primitive_desc.scratchpad_desc(), arguments, buffers);
  const dnnl::inner_product_backward_data primitive(primitive_desc);
  dnnl::stream stream = lowering.stream();
  lowering.EmitCall(
      node, [=](RunState&) { primitive.execute(stream, arguments); }, buffers);
}

void LowerLinearParameterGradient(Lowering& lowering, const Node& node) {
  const ValueId weight = lowering.value(node.outputs[0]).primal;
  const LinearFormats formats = ChooseLinear(lowering, node.inputs[1], weight, node.inputs[0]);
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
  std::vector<BufferId> buffers = {dy, x};
  Lowering::Arguments arguments = {{DNNL_ARG_DIFF_DST, lowering.Memory(formats.output, dy)},
                                   {DNNL_ARG_SRC, lowering.Memory(formats.input, x)}};
  lowering.AddScratchpad(primitive_desc.scratchpad_desc(), arguments, buffers);
  lowering.EmitParameterGradient(node, dnnl::inner_product_backward_weights(primitive_desc),
                                 arguments, buffers, formats.weight_gradient, formats.plain_weight);
}

}  // namespace trainyard::engine::cpu

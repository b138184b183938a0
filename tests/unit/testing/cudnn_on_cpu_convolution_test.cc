// Compares convolutions of the emulated cuDNN with plain loops in f64.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/unit/testing/cudnn_graphs.h"

namespace trainyard::cuda_on_cpu {
namespace {

// x [n, c, h, w] and y [n, k, p, q] lie as NHWC, the weight [k, c / groups, r, s] as KRSC.
struct Shape {
  int64_t n, c, h, w, k, kernel, stride, padding, dilation, groups;

  int64_t out(int64_t size) const {
    return (size + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1;
  }
  int64_t p() const { return out(h); }
  int64_t q() const { return out(w); }
  size_t x_size() const { return static_cast<size_t>(n * c * h * w); }
  size_t y_size() const { return static_cast<size_t>(n * k * p() * q()); }
  size_t weight_size() const { return static_cast<size_t>(k * c / groups * kernel * kernel); }
};

// Calls `visit(x index, weight index, y index)` for all products of the convolution.
template <typename Visit>
void ForEachProduct(const Shape& s, const Visit& visit) {
  const int64_t in = s.c / s.groups;
  for (int64_t n = 0; n < s.n; ++n)
    for (int64_t p = 0; p < s.p(); ++p)
      for (int64_t q = 0; q < s.q(); ++q)
        for (int64_t k = 0; k < s.k; ++k)
          for (int64_t r = 0; r < s.kernel; ++r)
            for (int64_t t = 0; t < s.kernel; ++t)
              for (int64_t i = 0; i < in; ++i) {
                const int64_t h = p * s.stride - s.padding + r * s.dilation;
                const int64_t w = q * s.stride - s.padding + t * s.dilation;
                if (h < 0 || h >= s.h || w < 0 || w >= s.w) continue;
                const int64_t c = k / (s.k / s.groups) * in + i;
                visit(static_cast<size_t>(((n * s.h + h) * s.w + w) * s.c + c),
                      static_cast<size_t>(((k * s.kernel + r) * s.kernel + t) * in + i),
                      static_cast<size_t>(((n * s.p() + p) * s.q() + q) * s.k + k));
              }
}

std::vector<int64_t> Nhwc(int64_t c, int64_t h, int64_t w) {
  return {h * w * c, 1, w * c, c};
}

class ConvolutionOnCpu : public testing::TestWithParam<Shape> {
 protected:
  Cudnn::Descriptor X() {
    return cudnn_.Tensor(1, {s_.n, s_.c, s_.h, s_.w}, {.strides = Nhwc(s_.c, s_.h, s_.w)});
  }
  Cudnn::Descriptor Weight() {
    return cudnn_.Tensor(2, {s_.k, s_.c / s_.groups, s_.kernel, s_.kernel},
                         {.strides = Nhwc(s_.c / s_.groups, s_.kernel, s_.kernel)});
  }
  Cudnn::Descriptor Y() {
    return cudnn_.Tensor(3, {s_.n, s_.k, s_.p(), s_.q()}, {.strides = Nhwc(s_.k, s_.p(), s_.q())});
  }
  Attribute Settings(cudnnBackendAttributeName_t name) {
    return Refer(
        name, {cudnn_.Make(
                  CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR,
                  {Choice(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT),
                   Choice(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE,
                          CUDNN_CROSS_CORRELATION),
                   Int(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 2),
                   Ints(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, {s_.padding, s_.padding}),
                   Ints(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, {s_.padding, s_.padding}),
                   Ints(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, {s_.stride, s_.stride}),
                   Ints(CUDNN_ATTR_CONVOLUTION_DILATIONS, {s_.dilation, s_.dilation})})});
  }
  void ExpectNear(const std::vector<float>& values, const std::vector<double>& expected) {
    ASSERT_EQ(values.size(), expected.size());
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_NEAR(static_cast<double>(values[i]), expected[i], 1e-4) << "element " << i;
    }
  }

  Shape s_ = GetParam();
  Cudnn cudnn_;
  std::vector<float> x_ = Numbers(s_.x_size(), 1);
  std::vector<float> weight_ = Numbers(s_.weight_size(), 2);
  std::vector<float> y_ = Numbers(s_.y_size(), 3);
};

double Product(float left, float right) {
  return static_cast<double>(left) * static_cast<double>(right);
}

TEST_P(ConvolutionOnCpu, ForwardIsTheSumOfProducts) {
  std::vector<double> expected(y_.size(), 0.0);
  ForEachProduct(s_, [&](size_t x, size_t weight, size_t y) {
    expected[y] += Product(x_[x], weight_[weight]);
  });
  cudnn_.Run({cudnn_.Make(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                          {Settings(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC),
                           Refer(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, {X()}),
                           Refer(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, {Weight()}),
                           Refer(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, {Y()})})},
             {{1, x_.data()}, {2, weight_.data()}, {3, y_.data()}});
  ExpectNear(y_, expected);
}

TEST_P(ConvolutionOnCpu, TheInputGradientIsScaledAndAddedToWhatWasThere) {
  std::vector<double> expected(x_.size(), 0.0);
  ForEachProduct(s_, [&](size_t x, size_t weight, size_t y) {
    expected[x] += 0.5 * Product(y_[y], weight_[weight]);
  });
  for (size_t i = 0; i < x_.size(); ++i) expected[i] += static_cast<double>(x_[i]);
  cudnn_.Run({cudnn_.Make(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                          {Settings(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC),
                           Refer(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, {X()}),
                           Refer(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, {Weight()}),
                           Refer(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, {Y()}),
                           Real(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, 0.5),
                           Real(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, 1)})},
             {{1, x_.data()}, {2, weight_.data()}, {3, y_.data()}});
  ExpectNear(x_, expected);
}

TEST_P(ConvolutionOnCpu, TheWeightGradientSumsOverAllPixels) {
  std::vector<double> expected(weight_.size(), 0.0);
  ForEachProduct(
      s_, [&](size_t x, size_t weight, size_t y) { expected[weight] += Product(x_[x], y_[y]); });
  cudnn_.Run({cudnn_.Make(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                          {Settings(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC),
                           Refer(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, {X()}),
                           Refer(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, {Weight()}),
                           Refer(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, {Y()})})},
             {{1, x_.data()}, {2, weight_.data()}, {3, y_.data()}});
  ExpectNear(weight_, expected);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, ConvolutionOnCpu,
    testing::Values(Shape{2, 3, 5, 6, 4, 3, 1, 1, 1, 1},    // padded, not square
                    Shape{1, 4, 7, 7, 6, 3, 2, 1, 1, 2},    // strided, two groups
                    Shape{2, 4, 6, 6, 4, 3, 1, 2, 2, 4},    // dilated, depthwise
                    Shape{2, 5, 4, 4, 3, 1, 2, 0, 1, 1}));  // one pixel, strided

}  // namespace
}  // namespace trainyard::cuda_on_cpu

// Measures copies, products and launches on the current device.
#include "tests/bench/gpu/rates.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "worker/engine/backend/cuda/blas/matmul.h"
#include "worker/engine/backend/cuda/kernels/elementwise.h"
#include "worker/engine/backend/cuda/runtime/runtime.h"

namespace trainyard::engine::bench {
namespace {

using cuda::CudaStatus;
using cuda::DeviceBuffer;
using cuda::Type;
using cuda::View;

constexpr Precision kPrecisions[] = {Precision::kF32, Precision::kTf32, Precision::kBf16,
                                     Precision::kF16};
constexpr int kRuns = 5;
// The channels that our copy kernel copies; the activations of large networks are that wide.
constexpr int64_t kCopiedChannels = 256;

using Work = std::function<absl::Status(cudaStream_t)>;

absl::StatusOr<double> Seconds(cudaStream_t stream, int64_t repetitions, const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < repetitions; ++i) TY_RETURN_IF_ERROR(work(stream));
  TY_RETURN_IF_ERROR(CudaStatus(cudaStreamSynchronize(stream), "measuring a rate"));
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The seconds of one `work`: the median of several runs, each at least `seconds` long.
absl::StatusOr<double> Measure(double seconds, const Work& work) {
  TY_ASSIGN_OR_RETURN(const cuda::Stream stream, cuda::CreateStream());
  // The first run loads what it needs, the second one tells how long it takes.
  TY_RETURN_IF_ERROR(Seconds(stream.get(), 1, work).status());
  TY_ASSIGN_OR_RETURN(const double once, Seconds(stream.get(), 1, work));
  const auto repetitions = std::max<int64_t>(1, static_cast<int64_t>(seconds / once));
  std::vector<double> runs;
  for (int run = 0; run < kRuns; ++run) {
    TY_ASSIGN_OR_RETURN(const double time, Seconds(stream.get(), repetitions, work));
    runs.push_back(time / static_cast<double>(repetitions));
  }
  std::sort(runs.begin(), runs.end());
  return runs[runs.size() / 2];
}

absl::Status MeasureCopies(const RateSizes& sizes, Rates& rates) {
  const int64_t bytes = cuda::AlignUpDevice(sizes.copy_bytes);
  TY_ASSIGN_OR_RETURN(const DeviceBuffer from, DeviceBuffer::Create(bytes, Backing::kMemory));
  TY_ASSIGN_OR_RETURN(const DeviceBuffer to, DeviceBuffer::Create(bytes, Backing::kMemory));
  TY_ASSIGN_OR_RETURN(const double runtime, Measure(sizes.seconds, [&](cudaStream_t stream) {
                        return CudaStatus(
                            cudaMemcpyAsync(to.data(), from.data(), static_cast<size_t>(bytes),
                                            cudaMemcpyDeviceToDevice, stream),
                            "copying within the device");
                      }));
  const int64_t channels = std::min(kCopiedChannels, bytes / cuda::SizeOf(Type::kBf16));
  const int64_t pixels = bytes / cuda::SizeOf(Type::kBf16) / channels;
  TY_ASSIGN_OR_RETURN(const double ours, Measure(sizes.seconds, [&](cudaStream_t stream) {
                        cuda::Copy({from.data(), channels, Type::kBf16},
                                   {to.data(), channels, Type::kBf16}, pixels, channels, false,
                                   stream);
                        return cuda::LaunchStatus("copying by a kernel");
                      }));
  rates.copy_bytes_per_second = 2 * static_cast<double>(bytes) / runtime;
  rates.kernel_bytes_per_second = 2 * static_cast<double>(bytes) / ours;
  return absl::OkStatus();
}

// Draws n x n numbers from U(-1, 1). Zeros would be faster than the numbers of a training, since
// they take less power.
absl::StatusOr<DeviceBuffer> RandomMatrix(int64_t n) {
  std::vector<float> values(static_cast<size_t>(n * n));
  uint32_t state = 1;
  for (float& value : values) {
    state = state * 1664525 + 1013904223;
    value = static_cast<float>(state >> 8) / (1 << 23) - 1;
  }
  const auto bytes = static_cast<int64_t>(values.size() * sizeof(float));
  TY_ASSIGN_OR_RETURN(DeviceBuffer matrix, DeviceBuffer::Create(bytes, Backing::kMemory));
  TY_RETURN_IF_ERROR(CudaStatus(
      cudaMemcpy(matrix.data(), values.data(), static_cast<size_t>(bytes), cudaMemcpyHostToDevice),
      "sending a matrix"));
  return matrix;
}

absl::Status MeasureProducts(const RateSizes& sizes, Rates& rates) {
  const int64_t n = cuda::PaddedChannels(sizes.matrix, Type::kBf16);
  TY_ASSIGN_OR_RETURN(const DeviceBuffer random, RandomMatrix(n));
  TY_ASSIGN_OR_RETURN(const DeviceBuffer converted,
                      DeviceBuffer::Create(random.bytes(), Backing::kMemory));
  TY_ASSIGN_OR_RETURN(const DeviceBuffer product,
                      DeviceBuffer::Create(random.bytes(), Backing::kMemory));
  TY_ASSIGN_OR_RETURN(const auto planner, cuda::blas::MatmulPlanner::Create({}));
  TY_ASSIGN_OR_RETURN(const cuda::Stream stream, cuda::CreateStream());
  for (const Precision precision : kPrecisions) {
    const Type type = precision == Precision::kBf16  ? Type::kBf16
                      : precision == Precision::kF16 ? Type::kF16
                                                     : Type::kF32;
    cuda::Copy({random.data(), n, Type::kF32}, {converted.data(), n, type}, n, n, false,
               stream.get());
    TY_RETURN_IF_ERROR(cuda::LaunchStatus("converting a matrix"));
    TY_RETURN_IF_ERROR(CudaStatus(cudaStreamSynchronize(stream.get()), "converting a matrix"));
    TY_ASSIGN_OR_RETURN(const cuda::blas::Matmul* matmul,
                        planner->Find({.m = n,
                                       .n = n,
                                       .k = n,
                                       .input = type,
                                       .output = type,
                                       .a_stride = n,
                                       .b_stride = n,
                                       .d_stride = n,
                                       .tf32 = precision == Precision::kTf32},
                                      cuda::Effort::kMeasure));
    TY_ASSIGN_OR_RETURN(
        const DeviceBuffer workspace,
        DeviceBuffer::Create(std::max<int64_t>(1, matmul->workspace_bytes()), Backing::kMemory));
    TY_ASSIGN_OR_RETURN(const double seconds, Measure(sizes.seconds, [&](cudaStream_t on) {
                          return matmul->Run({.a = converted.data(),
                                              .b = converted.data(),
                                              .d = product.data(),
                                              .workspace = workspace.data()},
                                             on);
                        }));
    const auto side = static_cast<double>(n);
    rates.flops_per_second[static_cast<size_t>(precision)] = 2 * side * side * side / seconds;
  }
  return absl::OkStatus();
}

absl::Status MeasureNodes(const RateSizes& sizes, Rates& rates) {
  const int64_t channels = cuda::PaddedChannels(1, Type::kBf16);
  TY_ASSIGN_OR_RETURN(const DeviceBuffer buffer,
                      DeviceBuffer::Create(2 * cuda::kDeviceAlignment, Backing::kMemory));
  const View from = {buffer.data(), channels, Type::kBf16};
  const View to = {buffer.data() + cuda::kDeviceAlignment, channels, Type::kBf16};
  TY_ASSIGN_OR_RETURN(const cuda::Stream stream, cuda::CreateStream());
  TY_ASSIGN_OR_RETURN(const cuda::CapturedGraph graph, cuda::Capture(stream.get(), [&] {
                        for (int64_t i = 0; i < sizes.nodes; ++i) {
                          cuda::Copy(from, to, 1, channels, false, stream.get());
                        }
                        return cuda::LaunchStatus("recording small kernels");
                      }));
  TY_ASSIGN_OR_RETURN(const double seconds, Measure(sizes.seconds, [&](cudaStream_t on) {
                        return CudaStatus(cudaGraphLaunch(graph.executable.get(), on),
                                          "launching small kernels");
                      }));
  rates.seconds_per_node = seconds / static_cast<double>(graph.nodes);
  return absl::OkStatus();
}

}  // namespace

double Rates::bytes_per_second() const {
  return std::max(copy_bytes_per_second, kernel_bytes_per_second);
}

absl::StatusOr<Rates> MeasureRates(const RateSizes& sizes) {
  Rates rates;
  int device = 0;
  TY_RETURN_IF_ERROR(CudaStatus(cudaGetDevice(&device), "asking for the device"));
  cudaDeviceProp properties = {};
  TY_RETURN_IF_ERROR(
      CudaStatus(cudaGetDeviceProperties(&properties, device), "asking for the device"));
  rates.device = properties.name;
  TY_RETURN_IF_ERROR(MeasureCopies(sizes, rates));
  TY_RETURN_IF_ERROR(MeasureProducts(sizes, rates));
  TY_RETURN_IF_ERROR(MeasureNodes(sizes, rates));
  return rates;
}

nlohmann::json ToJson(const Rates& rates) {
  nlohmann::json products;
  for (const Precision precision : kPrecisions) {
    products[std::string(PrecisionName(precision))] = rates.flops(precision);
  }
  return {{"device", rates.device},
          {"copy_bytes_per_second", rates.copy_bytes_per_second},
          {"kernel_bytes_per_second", rates.kernel_bytes_per_second},
          {"flops_per_second", products},
          {"seconds_per_node", rates.seconds_per_node}};
}

absl::StatusOr<Rates> ReadRates(const std::string& path) {
  TY_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const nlohmann::json file = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto wrong = [&path] {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " has no rates; expected what --roofline --json wrote"));
  };
  if (!file.is_object() || !file.contains("rates") || !file["rates"].is_object()) return wrong();
  const nlohmann::json& from = file["rates"];
  Rates rates;
  const auto read = [](const nlohmann::json& object, const std::string& name, double& number) {
    const auto found = object.find(name);
    const bool is_rate = found != object.end() && found->is_number() && found->get<double>() > 0;
    if (is_rate) number = found->get<double>();
    return is_rate;
  };
  bool is_whole = read(from, "copy_bytes_per_second", rates.copy_bytes_per_second) &&
                  read(from, "kernel_bytes_per_second", rates.kernel_bytes_per_second) &&
                  read(from, "seconds_per_node", rates.seconds_per_node) &&
                  from.contains("flops_per_second") && from["flops_per_second"].is_object();
  for (const Precision precision : kPrecisions) {
    is_whole = is_whole && read(from["flops_per_second"], std::string(PrecisionName(precision)),
                                rates.flops_per_second[static_cast<size_t>(precision)]);
  }
  if (!is_whole) return wrong();
  if (from.contains("device") && from["device"].is_string()) rates.device = from["device"];
  return rates;
}

std::string RenderRates(const Rates& rates) {
  std::string text = absl::StrCat(rates.device, "\n\n| what | rate |\n|---|---|\n");
  absl::StrAppendFormat(&text, "| copies by the runtime | %.3f TB/s |\n",
                        rates.copy_bytes_per_second * 1e-12);
  absl::StrAppendFormat(&text, "| copies by our kernel | %.3f TB/s |\n",
                        rates.kernel_bytes_per_second * 1e-12);
  for (const Precision precision : kPrecisions) {
    absl::StrAppendFormat(&text, "| matrix products in %s | %.1f TFLOP/s |\n",
                          PrecisionName(precision), rates.flops(precision) * 1e-12);
  }
  absl::StrAppendFormat(&text, "| node of a graph | %.2f us |\n", rates.seconds_per_node * 1e6);
  return text;
}

}  // namespace trainyard::engine::bench

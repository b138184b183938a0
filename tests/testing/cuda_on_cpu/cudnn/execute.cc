// Executes plans. Pointers are checked at the call; the work is queued on the handle's stream.
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/testing/cuda_on_cpu/cuda_on_cpu.h"
#include "tests/testing/cuda_on_cpu/cudnn/cudnn_on_cpu.h"
#include "tests/testing/cuda_on_cpu/cudnn/handle.h"
#include "tests/testing/cuda_on_cpu/cudnn/program.h"

namespace trainyard::cuda_on_cpu {
namespace cudnn {
namespace {

std::atomic<int64_t> plans_run{0};

// Remembers what a test does to some engines.
class Mischief {
 public:
  void Set(std::function<bool(int64_t)> hits) {
    const std::lock_guard lock(mutex_);
    hits_ = std::move(hits);
  }
  bool Hits(const Engine& engine) {
    std::function<bool(int64_t)> hits;
    {
      const std::lock_guard lock(mutex_);
      hits = hits_;
    }
    return hits != nullptr && hits(engine.index);
  }

 private:
  std::mutex mutex_;
  std::function<bool(int64_t)> hits_;
};

Mischief& Failures() {
  static auto& failures = *new Mischief();
  return failures;
}

Mischief& Spoils() {
  static auto& spoils = *new Mischief();
  return spoils;
}

// The time that plans of a convolution take, as a test says.
class Times {
 public:
  void Set(std::function<int64_t(const ConvolutionShape&)> microseconds) {
    const std::lock_guard lock(mutex_);
    microseconds_ = std::move(microseconds);
  }
  void Spend(const Program& program) {
    std::function<int64_t(const ConvolutionShape&)> microseconds;
    {
      const std::lock_guard lock(mutex_);
      microseconds = microseconds_;
    }
    const std::optional<ConvolutionShape> convolution = ConvolutionOf(program);
    // All work takes a microsecond by itself.
    if (microseconds && convolution.has_value()) TakeTime(microseconds(*convolution) - 1);
  }

 private:
  std::mutex mutex_;
  std::function<int64_t(const ConvolutionShape&)> microseconds_;
};

Times& ConvolutionTimes() {
  static auto& times = *new Times();
  return times;
}

// The operands of one execution. Scalars that are passed by value are copied at the call, as in
// cuDNN.
struct Execution {
  std::shared_ptr<const Program> program;
  const Engine* engine = nullptr;
  std::map<int64_t, void*> pointers;
  std::map<int64_t, std::vector<std::byte>> scalars;
  void* workspace = nullptr;
  bool is_spoiled = false;
};

cudnnStatus_t BindTensor(const TensorSpec& spec, const std::map<int64_t, void*>& given,
                         Execution* execution) {
  const auto found = given.find(spec.id);
  if (found == given.end()) {
    return Fail(CUDNN_STATUS_BAD_PARAM,
                absl::StrCat("the variant pack has no pointer for tensor ", spec.id));
  }
  void* data = found->second;
  if (data == nullptr) {
    return Fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, absl::StrCat("tensor ", spec.id, " is null"));
  }
  if (spec.is_by_value) {
    const auto* begin = static_cast<const std::byte*>(data);
    execution->scalars[spec.id].assign(begin, begin + TypeBytes(spec.type));
    return CUDNN_STATUS_SUCCESS;
  }
  if (reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(spec.alignment) != 0) {
    return Fail(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER,
                absl::StrCat("tensor ", spec.id, " is not aligned to ", spec.alignment, " bytes"));
  }
  execution->pointers[spec.id] = data;
  return CUDNN_STATUS_SUCCESS;
}

// Overwrites the workspace with bytes that are NaNs, so that a result that somebody left there
// shows.
void Scribble(const Execution& execution) {
  if (execution.workspace != nullptr) {
    std::memset(execution.workspace, 0xff,
                static_cast<size_t>(WorkspaceBytes(*execution.program, *execution.engine)));
  }
}

void Spoil(const Operation& operation, Memory& memory) {
  for (const TensorSpec& output : operation.outputs) {
    if (output.is_virtual) continue;
    std::vector<float> values = memory.Load(output);
    values.back() = 2 * values.back() + 1;
    memory.Store(output, values);
  }
}

void Run(const Execution& execution) {
  const int64_t number = ++plans_run;
  Memory memory(execution.engine->is_deterministic ? 0 : static_cast<uint64_t>(number) << 32);
  for (const auto& [id, data] : execution.pointers) {
    memory.Bind(id, data);
  }
  for (const auto& [id, bytes] : execution.scalars) {
    memory.Bind(id, const_cast<std::byte*>(bytes.data()));
  }
  ConvolutionTimes().Spend(*execution.program);
  Scribble(execution);
  for (const auto& operation : execution.program->operations) {
    operation->run(&memory);
    if (execution.is_spoiled) Spoil(*operation, memory);
  }
  Scribble(execution);
}

cudnnStatus_t Prepare(const Descriptor& plan, const Descriptor& pack, Execution* execution) {
  const auto ids = pack.Ints(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto pointers = pack.Pointers(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  std::map<int64_t, void*> given;
  for (size_t i = 0; i < ids.size(); ++i) {
    given[ids[i]] = pointers[i];
  }
  execution->program = plan.program;
  execution->engine = plan.engine;
  for (const TensorSpec& spec : plan.program->tensors) {
    TY_CUDNN_TRY(BindTensor(spec, given, execution));
  }
  const int64_t workspace_bytes = WorkspaceBytes(*plan.program, *plan.engine);
  if (workspace_bytes > 0) {
    const auto workspace = pack.Pointers(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
    if (workspace.empty() || workspace.front() == nullptr) {
      return Fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER,
                  absl::StrCat("the plan needs a workspace of ", workspace_bytes, " bytes"));
    }
    execution->workspace = workspace.front();
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t CheckFinalized(const Descriptor* descriptor, cudnnBackendDescriptorType_t type,
                             const char* what) {
  if (descriptor == nullptr) {
    return Fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, absl::StrCat(what, " is no descriptor"));
  }
  if (descriptor->type != type) {
    return Fail(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, absl::StrCat(what, " is something else"));
  }
  if (!descriptor->is_finalized) {
    return Fail(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, absl::StrCat(what, " is not finalized"));
  }
  return CUDNN_STATUS_SUCCESS;
}

// A plan belongs to the handle for which it was made.
cudnnStatus_t CheckOwner(const Descriptor& plan, cudnnHandle_t handle) {
  const auto owner = plan.Pointers(CUDNN_ATTR_EXECUTION_PLAN_HANDLE);
  if (owner.empty() || owner.front() == handle) return CUDNN_STATUS_SUCCESS;
  return Fail(CUDNN_STATUS_BAD_PARAM, "the plan was made for another handle");
}

}  // namespace
}  // namespace cudnn

void FailRuns(std::function<bool(int64_t engine)> fails) {
  cudnn::Failures().Set(std::move(fails));
}

void SpoilRuns(std::function<bool(int64_t engine)> spoils) {
  cudnn::Spoils().Set(std::move(spoils));
}

void SetConvolutionTimes(std::function<int64_t(const ConvolutionShape&)> microseconds) {
  cudnn::ConvolutionTimes().Set(std::move(microseconds));
}

int64_t PlansRun() {
  return cudnn::plans_run;
}

}  // namespace trainyard::cuda_on_cpu

namespace cudnn = trainyard::cuda_on_cpu::cudnn;

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack) {
  TY_CUDNN_TRY(cudnn::CheckHandle(handle));
  const cudnn::Descriptor* plan_body = cudnn::BodyOf(plan);
  const cudnn::Descriptor* pack_body = cudnn::BodyOf(pack);
  TY_CUDNN_TRY(
      cudnn::CheckFinalized(plan_body, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, "the plan"));
  TY_CUDNN_TRY(
      cudnn::CheckFinalized(pack_body, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, "the variant pack"));
  TY_CUDNN_TRY(cudnn::CheckOwner(*plan_body, handle));
  auto execution = std::make_shared<cudnn::Execution>();
  TY_CUDNN_TRY(cudnn::Prepare(*plan_body, *pack_body, execution.get()));
  execution->is_spoiled = cudnn::Spoils().Hits(*plan_body->engine);
  if (cudnn::Failures().Hits(*plan_body->engine)) {
    return cudnn::Fail(CUDNN_STATUS_EXECUTION_FAILED, "a test made this run fail");
  }
  const cudaError_t error = trainyard::cuda_on_cpu::Enqueue(
      cudnn::StreamOf(handle), [execution = std::move(execution)] { cudnn::Run(*execution); });
  return error == cudaSuccess
             ? CUDNN_STATUS_SUCCESS
             : cudnn::Fail(CUDNN_STATUS_EXECUTION_FAILED_CUDART,
                           absl::StrCat("the stream takes no work: CUDA error ", error));
}

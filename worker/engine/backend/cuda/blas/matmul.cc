// Computes products with cuBLASLt. A row-major matrix is the column-major transpose of itself, so
// cuBLASLt computes d^T = op(b)^T op(a)^T, where its A is our b, its B our a, and its rows our
// columns. The bias, one for each of our columns, is then one for each of its rows, as its epilogue
// needs it (epilogue.h).
#include "worker/engine/backend/cuda/blas/matmul.h"

#include <cublasLt.h>

#include <algorithm>
#include <bit>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "worker/engine/backend/cuda/blas/autotune.h"
#include "worker/engine/backend/cuda/blas/epilogue.h"

namespace trainyard::engine::cuda::blas {
namespace {

constexpr int64_t kPointerAlignment = 16;
constexpr int64_t kWorkspaceAlignment = 256;

absl::Status FromBlas(cublasStatus_t status, absl::string_view what) {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(what, ": ", cublasLtGetStatusString(status)));
}

cudaDataType_t DataType(Type type) {
  switch (type) {
    case Type::kF32:
      return CUDA_R_32F;
    case Type::kF16:
      return CUDA_R_16F;
    case Type::kBf16:
      return CUDA_R_16BF;
  }
  return CUDA_R_32F;
}

// Own cuBLASLt's descriptors. Attributes are set with their own size, which cuBLASLt checks.
template <class Handle, cublasStatus_t (*destroy)(Handle)>
class Owned {
 public:
  Owned() = default;
  Owned(Owned&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Owned() {
    if (handle_ != nullptr) (void)destroy(handle_);
  }
  Handle get() const { return handle_; }
  Handle* out() { return &handle_; }

 private:
  Handle handle_ = nullptr;
};
using LibraryHandle = Owned<cublasLtHandle_t, cublasLtDestroy>;
using Description = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

template <class Value>
absl::Status Set(const Description& description, cublasLtMatmulDescAttributes_t attribute,
                 const Value& value) {
  return FromBlas(
      cublasLtMatmulDescSetAttribute(description.get(), attribute, &value, sizeof(value)),
      absl::StrCat("attribute ", static_cast<int>(attribute), " of a product"));
}

template <class Value>
absl::Status Set(const Preference& preference, cublasLtMatmulPreferenceAttributes_t attribute,
                 const Value& value) {
  return FromBlas(
      cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof(value)),
      absl::StrCat("preference ", static_cast<int>(attribute), " of a product"));
}

// `rows` and `columns` are those of the matrix in memory, row-major.
absl::StatusOr<Layout> MakeLayout(Type type, int64_t rows, int64_t columns, int64_t stride) {
  Layout layout;
  TY_RETURN_IF_ERROR(FromBlas(
      cublasLtMatrixLayoutCreate(layout.out(), DataType(type), static_cast<uint64_t>(columns),
                                 static_cast<uint64_t>(rows), stride),
      "layout of a matrix"));
  return layout;
}

// Returns the alignment that the address of every row, and so the matrix, certainly has.
uint32_t RowAlignment(int64_t stride, Type type) {
  const int64_t bytes = stride * SizeOf(type);
  return static_cast<uint32_t>(std::min(kPointerAlignment, bytes & -bytes));
}

bool IsAligned(const void* pointer, int64_t alignment) {
  return reinterpret_cast<uintptr_t>(pointer) % static_cast<uintptr_t>(alignment) == 0;
}

// Returns INVALID_ARGUMENT if a pointer is missing, not wanted or not aligned.
absl::Status CheckMemory(const MatmulProblem& problem, const MatmulMemory& memory) {
  struct Part {
    absl::string_view name;
    const void* data;
    bool is_wanted;
  };
  const bool has_sums = problem.summed != Summed::kNone;
  for (const Part& part :
       {Part{"a", memory.a, true}, Part{"b", memory.b, true},
        Part{"addend", memory.addend, problem.addend_stride != 0},
        Part{"bias", memory.bias, problem.bias}, Part{"aux", memory.aux, problem.aux_stride != 0},
        Part{"d", memory.d, true}, Part{"sums", memory.sums, has_sums},
        Part{"tickets", memory.tickets, has_sums}}) {
    if (part.is_wanted != (part.data != nullptr)) {
      return absl::InvalidArgumentError(absl::StrCat("product ", problem.Key(), ": ", part.name,
                                                     " is ",
                                                     part.is_wanted ? "missing" : "not wanted"));
    }
    if (!IsAligned(part.data, kPointerAlignment)) {
      return absl::InvalidArgumentError(absl::StrCat("product ", problem.Key(), ": ", part.name,
                                                     " is not aligned to ", kPointerAlignment,
                                                     " bytes"));
    }
  }
  if (IsAligned(memory.workspace, kWorkspaceAlignment)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("product ", problem.Key(),
                                                 ": the workspace is not aligned to ",
                                                 kWorkspaceAlignment, " bytes"));
}

class LtMatmul : public Matmul {
 public:
  // Makes the descriptors of `problem`, without an algorithm.
  static absl::StatusOr<std::unique_ptr<LtMatmul>> Describe(cublasLtHandle_t library,
                                                            const MatmulProblem& problem,
                                                            Fused fused) {
    auto matmul = std::unique_ptr<LtMatmul>(new LtMatmul(library, problem, fused));
    const Extents extents = ExtentsOf(problem);
    TY_ASSIGN_OR_RETURN(
        matmul->a_, MakeLayout(problem.input, extents.a_rows, extents.a_columns, problem.a_stride));
    TY_ASSIGN_OR_RETURN(
        matmul->b_, MakeLayout(problem.input, extents.b_rows, extents.b_columns, problem.b_stride));
    const int64_t d_stride = matmul->product_stride();
    TY_ASSIGN_OR_RETURN(matmul->d_, MakeLayout(problem.output, problem.m, problem.n, d_stride));
    const int64_t c_stride = problem.addend_stride != 0 ? problem.addend_stride : d_stride;
    TY_ASSIGN_OR_RETURN(matmul->c_, MakeLayout(problem.output, problem.m, problem.n, c_stride));
    TY_RETURN_IF_ERROR(matmul->MakeDescription());
    return matmul;
  }

  int64_t workspace_bytes() const override {
    return std::max(static_cast<int64_t>(workspace_bytes_), OwnWorkspace(problem_, fused_));
  }
  OwnEpilogue own_epilogue() const override { return OwnEpilogueOf(problem_, fused_); }

  absl::Status Run(const MatmulMemory& memory, cudaStream_t stream) const override {
    TY_RETURN_IF_ERROR(CheckMemory(problem_, memory));
    TY_RETURN_IF_ERROR(SetPointers(memory));
    void* const d = GoesIntoAux(problem_, fused_) ? memory.aux : memory.d;
    const void* const c = memory.addend != nullptr ? memory.addend : d;
    const float alpha = 1;
    const float beta = problem_.adds || memory.addend != nullptr ? 1 : 0;
    TY_RETURN_IF_ERROR(
        FromBlas(cublasLtMatmul(library_, description_.get(), &alpha, memory.b, b_.get(), memory.a,
                                a_.get(), &beta, c, c_.get(), d, d_.get(), &algorithm_,
                                memory.workspace, workspace_bytes_, stream),
                 absl::StrCat("product ", problem_.Key())));
    return RunOwnEpilogue(problem_, fused_, memory, stream);
  }

  void Choose(const cublasLtMatmulHeuristicResult_t& candidate) {
    algorithm_ = candidate.algo;
    workspace_bytes_ = candidate.workspaceSize;
  }

  // Returns the algorithms that cuBLASLt proposes, best first, or none if it has none.
  absl::StatusOr<std::vector<cublasLtMatmulHeuristicResult_t>> Algorithms(
      const MatmulOptions& options) const {
    Preference preference;
    TY_RETURN_IF_ERROR(FromBlas(cublasLtMatmulPreferenceCreate(preference.out()), "preference"));
    TY_RETURN_IF_ERROR(Set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                           static_cast<uint64_t>(options.workspace_bytes_max)));
    // Only split-k schemes are allowed that add parts of k in f32, in the workspace, in a step of
    // their own. Other schemes add in the output's type, or in its memory.
    TY_RETURN_IF_ERROR(Set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                           uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE}));
    const int64_t d_stride = product_stride();
    const int64_t c_stride = problem_.addend_stride != 0 ? problem_.addend_stride : d_stride;
    TY_RETURN_IF_ERROR(Set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                           RowAlignment(problem_.b_stride, problem_.input)));
    TY_RETURN_IF_ERROR(Set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                           RowAlignment(problem_.a_stride, problem_.input)));
    TY_RETURN_IF_ERROR(Set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                           RowAlignment(c_stride, problem_.output)));
    TY_RETURN_IF_ERROR(Set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
                           RowAlignment(d_stride, problem_.output)));

    const int wanted = options.autotunes ? std::max(1, options.candidates_max) : 1;
    std::vector<cublasLtMatmulHeuristicResult_t> candidates(static_cast<size_t>(wanted));
    int found = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        library_, description_.get(), b_.get(), a_.get(), c_.get(), d_.get(), preference.get(),
        wanted, candidates.data(), &found);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE)
      found = 0;
    else
      TY_RETURN_IF_ERROR(FromBlas(status, absl::StrCat("product ", problem_.Key())));
    candidates.resize(static_cast<size_t>(found));
    std::erase_if(candidates, [](const cublasLtMatmulHeuristicResult_t& candidate) {
      return candidate.state != CUBLAS_STATUS_SUCCESS;
    });
    return candidates;
  }

 private:
  LtMatmul(cublasLtHandle_t library, const MatmulProblem& problem, Fused fused)
      : library_(library), problem_(problem), fused_(fused) {}

  absl::Status MakeDescription() {
    // The plain compute type never rounds f32 inputs. With 16-bit inputs it means tensor cores with
    // sums in f32.
    const bool tf32 = problem_.tf32 && problem_.input == Type::kF32;
    TY_RETURN_IF_ERROR(
        FromBlas(cublasLtMatmulDescCreate(description_.out(),
                                          tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
                                          CUDA_R_32F),
                 "description of a product"));
    const int32_t a = problem_.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    const int32_t b = problem_.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    TY_RETURN_IF_ERROR(Set(description_, CUBLASLT_MATMUL_DESC_TRANSA, a));
    TY_RETURN_IF_ERROR(Set(description_, CUBLASLT_MATMUL_DESC_TRANSB, b));
    const auto epilogue = static_cast<uint32_t>(EpilogueOf(problem_, fused_));
    TY_RETURN_IF_ERROR(Set(description_, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue));
    // Nothing is read there. The heuristic derives the alignment of these vectors and matrices from
    // their addresses.
    void* const aligned = std::bit_cast<void*>(uintptr_t{kPointerAlignment});
    const int32_t type = DataType(problem_.output);
    if (has_vector()) {
      TY_RETURN_IF_ERROR(Set(description_, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type));
      TY_RETURN_IF_ERROR(Set(description_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, aligned));
    }
    if (!has_aux()) return absl::OkStatus();
    TY_RETURN_IF_ERROR(Set(description_, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, type));
    TY_RETURN_IF_ERROR(
        Set(description_, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, problem_.aux_stride));
    return Set(description_, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aligned);
  }

  // These say what cuBLASLt's epilogue reads or writes: a bias, or sums in its place, and the aux.
  bool has_vector() const {
    return fused_ == Fused::kAll ? problem_.bias || problem_.summed != Summed::kNone
                                 : fused_ == Fused::kBias;
  }
  bool has_aux() const { return fused_ == Fused::kAll && problem_.aux_stride != 0; }
  // Returns the stride of what cuBLASLt calls d.
  int64_t product_stride() const {
    return GoesIntoAux(problem_, fused_) ? problem_.aux_stride : problem_.d_stride;
  }

  absl::Status SetPointers(const MatmulMemory& memory) const {
    if (has_vector()) {
      const void* const vector = problem_.bias ? memory.bias : memory.sums;
      TY_RETURN_IF_ERROR(Set(description_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, vector));
    }
    if (!has_aux()) return absl::OkStatus();
    return Set(description_, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, memory.aux);
  }

  const cublasLtHandle_t library_;
  const MatmulProblem problem_;
  const Fused fused_;
  Description description_;
  Layout a_, b_, c_, d_;
  cublasLtMatmulAlgo_t algorithm_ = {};
  size_t workspace_bytes_ = 0;
};

class LtMatmulPlanner : public MatmulPlanner {
 public:
  LtMatmulPlanner(LibraryHandle library, const MatmulOptions& options)
      : library_(std::move(library)), options_(options) {}

  absl::StatusOr<const Matmul*> Find(const MatmulProblem& problem, Effort effort) override {
    const std::string key = problem.Key();
    if (const auto known = measured_.find(key); known != measured_.end()) {
      return known->second.get();
    }
    Products& products = effort == Effort::kMeasure ? measured_ : first_;
    if (const auto known = products.find(key); known != products.end()) {
      return known->second.get();
    }
    TY_RETURN_IF_ERROR(Validate(problem));
    TY_ASSIGN_OR_RETURN(auto product, Plan(problem, effort));
    return products.emplace(key, std::move(product)).first->second.get();
  }

  std::map<std::string, int> MeasuredChoices() const override { return choices_; }

  void TakeChoices(const std::map<std::string, int>& choices) override {
    for (const auto& [key, choice] : choices) choices_[key] = choice;
  }

 private:
  using Products = std::map<std::string, std::unique_ptr<LtMatmul>>;

  // The product in one or two of its forms, with their algorithms.
  struct Candidates {
    struct Candidate {
      size_t form;
      cublasLtMatmulHeuristicResult_t algorithm;
    };
    std::vector<std::unique_ptr<LtMatmul>> forms;
    std::vector<Candidate> all;

    LtMatmul& Choose(size_t index) {
      LtMatmul& product = *forms[all[index].form];
      product.Choose(all[index].algorithm);
      return product;
    }
  };

  // Returns the candidates of `forms_max` forms that cuBLASLt supports, or of fewer.
  absl::StatusOr<Candidates> FindCandidates(const MatmulProblem& problem, size_t forms_max) {
    Candidates candidates;
    for (const Fused fused : FormsOf(problem)) {
      TY_ASSIGN_OR_RETURN(auto product, LtMatmul::Describe(library_.get(), problem, fused));
      TY_ASSIGN_OR_RETURN(const auto algorithms, product->Algorithms(options_));
      if (algorithms.empty()) continue;
      for (const auto& algorithm : algorithms) {
        candidates.all.push_back({candidates.forms.size(), algorithm});
      }
      candidates.forms.push_back(std::move(product));
      if (candidates.forms.size() == forms_max) break;
    }
    if (!candidates.all.empty()) return candidates;
    return absl::UnimplementedError(
        absl::StrCat("product ", problem.Key(), ": cuBLASLt has no algorithm"));
  }

  absl::StatusOr<std::unique_ptr<LtMatmul>> Plan(const MatmulProblem& problem, Effort effort) {
    const bool measures = options_.autotunes && effort == Effort::kMeasure;
    const size_t forms_max = measures && ComparesForms(problem) ? 2 : 1;
    TY_ASSIGN_OR_RETURN(Candidates candidates, FindCandidates(problem, forms_max));
    size_t choice = 0;
    if (measures) {
      TY_ASSIGN_OR_RETURN(choice, Fastest(problem, candidates));
    }
    (void)candidates.Choose(choice);
    return std::move(candidates.forms[candidates.all[choice].form]);
  }

  // Choices hold for one version of the library.
  static std::string ChoiceKey(const MatmulProblem& problem) {
    return absl::StrCat(problem.Key(), " | cublasLt ", cublasLtGetVersion());
  }

  // Returns 0, and keeps no choice, if nothing could be measured.
  absl::StatusOr<size_t> Fastest(const MatmulProblem& problem, Candidates& candidates) {
    const size_t count = candidates.all.size();
    if (count < 2) return 0;
    const std::string key = ChoiceKey(problem);
    const auto known = choices_.find(key);
    if (!options_.scrutiny.verifies && known != choices_.end() && known->second >= 0 &&
        static_cast<size_t>(known->second) < count) {
      return static_cast<size_t>(known->second);
    }
    int64_t workspace_bytes = 0;
    for (size_t i = 0; i < count; ++i) {
      workspace_bytes = std::max(workspace_bytes, candidates.Choose(i).workspace_bytes());
    }
    PlanRecord record = {.problem = problem.Key(),
                         .candidates = static_cast<int>(count),
                         .workspace_bytes = workspace_bytes,
                         .is_verified = options_.scrutiny.verifies};
    TY_ASSIGN_OR_RETURN(
        const int fastest,
        FastestCandidate(problem, record,
                         [&](int index, const MatmulMemory& memory, cudaStream_t stream) {
                           return candidates.Choose(static_cast<size_t>(index)).Run(memory, stream);
                         }));
    if (fastest < 0) return 0;
    choices_[key] = fastest;
    if (options_.scrutiny.records != nullptr) {
      options_.scrutiny.records->push_back(std::move(record));
    }
    return static_cast<size_t>(fastest);
  }

  const LibraryHandle library_;
  const MatmulOptions options_;
  std::map<std::string, int> choices_;  // of kMeasure, or taken over
  Products measured_;                   // found with kMeasure
  Products first_;                      // found with kInherit
};

}  // namespace

absl::StatusOr<std::unique_ptr<MatmulPlanner>> MatmulPlanner::Create(const MatmulOptions& options) {
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaSuccess || devices == 0) {
    (void)cudaGetLastError();
    return absl::UnavailableError(
        absl::StrCat("there is no GPU for matrix products: ",
                     error == cudaSuccess ? "none is visible" : cudaGetErrorString(error)));
  }
  LibraryHandle library;
  const cublasStatus_t created = cublasLtCreate(library.out());
  if (created != CUBLAS_STATUS_SUCCESS) {
    return absl::UnavailableError(
        absl::StrCat("cuBLASLt does not start: ", cublasLtGetStatusString(created)));
  }
  return std::make_unique<LtMatmulPlanner>(std::move(library), options);
}

}  // namespace trainyard::engine::cuda::blas

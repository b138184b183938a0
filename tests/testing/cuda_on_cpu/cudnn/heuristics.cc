// The engines, which of them the heuristics offer for a graph, and how tests make graphs
// unsupported.
#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/testing/cuda_on_cpu/cudnn/cudnn_on_cpu.h"
#include "tests/testing/cuda_on_cpu/cudnn/program.h"

namespace trainyard::cuda_on_cpu {
namespace cudnn {
namespace {

constexpr int64_t kMebibyte = int64_t{1} << 20;

// cudnn_on_cpu.h says what each engine is for.
constexpr std::array<Engine, 5> kEngines = {{
    {0, 0, true, true},
    {1, kMebibyte, true, true},
    {2, 300 * kMebibyte, true, true},
    {3, 0, false, true},
    {4, 0, true, false},
}};

std::mutex refusal_mutex;
std::atomic<bool> refuses_attention{false};

std::function<bool(const ConvolutionShape&)>& Refusal() {
  static auto& refusal = *new std::function<bool(const ConvolutionShape&)>();
  return refusal;
}

int64_t CountType(const Program& program, cudnnBackendDescriptorType_t type) {
  return std::count_if(program.operations.begin(), program.operations.end(),
                       [&](const auto& operation) { return operation->type == type; });
}

bool HasAttention(const Program& program) {
  return CountType(program, CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR) > 0 ||
         CountType(program, CUDNN_BACKEND_OPERATION_SDPA_BWD_DESCRIPTOR) > 0 ||
         CountType(program, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) > 1;
}

// A finalized engine for the graph.
cudnnStatus_t MakeConfig(const Descriptor& heuristics, const Engine& engine,
                         std::shared_ptr<const Descriptor>* config) {
  auto made_engine = std::make_shared<Descriptor>();
  made_engine->type = CUDNN_BACKEND_ENGINE_DESCRIPTOR;
  made_engine->SetChildren(CUDNN_ATTR_ENGINE_OPERATION_GRAPH,
                           {heuristics.SharedChild(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH)});
  made_engine->SetInts(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, {engine.index});
  TY_CUDNN_TRY(Finalize(made_engine.get()));
  auto made_config = std::make_shared<Descriptor>();
  made_config->type = CUDNN_BACKEND_ENGINECFG_DESCRIPTOR;
  made_config->SetChildren(CUDNN_ATTR_ENGINECFG_ENGINE, {std::move(made_engine)});
  TY_CUDNN_TRY(Finalize(made_config.get()));
  *config = std::move(made_config);
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

const Engine* FindEngine(int64_t index) {
  const bool is_known = index >= 0 && index < EngineCount();
  return is_known ? &kEngines[static_cast<size_t>(index)] : nullptr;
}

int64_t EngineCount() {
  return static_cast<int64_t>(kEngines.size());
}

int64_t WorkspaceBytes(const Program& program, const Engine& engine) {
  return engine.workspace_bytes + program.workspace_bytes;
}

bool IsRefused(const Program& program) {
  if (HasUnknownNormFusion(program) || (refuses_attention && HasAttention(program))) {
    return true;
  }
  std::function<bool(const ConvolutionShape&)> refuses;
  {
    std::lock_guard lock(refusal_mutex);
    refuses = Refusal();
  }
  const std::optional<ConvolutionShape> convolution = ConvolutionOf(program);
  return refuses != nullptr && convolution.has_value() && refuses(*convolution);
}

std::optional<ConvolutionShape> ConvolutionOf(const Program& program) {
  for (const auto& operation : program.operations) {
    if (!operation->convolution.has_value()) continue;
    ConvolutionShape shape = *operation->convolution;
    shape.operations = static_cast<int64_t>(program.operations.size());
    shape.is_normalised =
        shape.kind != ConvolutionShape::Kind::kInputGradient && operation->inputs[0].is_virtual;
    shape.has_statistics = CountType(program, CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR) > 0;
    shape.has_norm_sums = CountType(program, CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR) > 0;
    return shape;
  }
  return std::nullopt;
}

std::vector<const Engine*> Offers(const Program& program, cudnnBackendHeurMode_t mode) {
  std::vector<int64_t> offered;
  if (mode == CUDNN_HEUR_MODE_FALLBACK) {
    offered = {0};
  } else if (CountType(program, CUDNN_BACKEND_OPERATION_BN_FINALIZE_STATISTICS_DESCRIPTOR) > 0) {
    offered = {};
  } else if (mode == CUDNN_HEUR_MODE_B) {
    offered = {3, 1};
  } else {
    offered = {4, 2, 3, 1, 0};
  }
  std::vector<const Engine*> engines;
  engines.reserve(offered.size());
  for (const int64_t index : offered) {
    engines.push_back(FindEngine(index));
  }
  return IsRefused(program) ? std::vector<const Engine*>() : engines;
}

cudnnStatus_t FinalizeGraph(Descriptor* graph) {
  TY_CUDNN_TRY(CompileProgram(*graph, &graph->program));
  graph->SetInts(CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT, CUDNN_TYPE_INT64, {EngineCount()});
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t FinalizeHeuristics(Descriptor* heuristics) {
  heuristics->program = heuristics->Child(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH)->program;
  const int64_t mode = heuristics->Int(CUDNN_ATTR_ENGINEHEUR_MODE, -1);
  if (mode < 0 || mode >= CUDNN_HEUR_MODES_COUNT) {
    return Fail(CUDNN_STATUS_BAD_PARAM, absl::StrCat("heuristic mode ", mode));
  }
  std::vector<std::shared_ptr<const Descriptor>> results;
  for (const Engine* engine :
       Offers(*heuristics->program, static_cast<cudnnBackendHeurMode_t>(mode))) {
    results.emplace_back();
    TY_CUDNN_TRY(MakeConfig(*heuristics, *engine, &results.back()));
  }
  heuristics->SetChildren(CUDNN_ATTR_ENGINEHEUR_RESULTS, std::move(results));
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t FinalizeEngine(Descriptor* engine) {
  const int64_t index = engine->Int(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, -1);
  engine->engine = FindEngine(index);
  if (engine->engine == nullptr) {
    return Fail(CUDNN_STATUS_BAD_PARAM, absl::StrCat("there is no engine ", index));
  }
  engine->program = engine->Child(CUDNN_ATTR_ENGINE_OPERATION_GRAPH)->program;
  // The first engine computes in true f32.
  std::vector<int64_t> notes;
  if (index > 0) {
    notes.push_back(CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
  }
  if (!engine->engine->is_deterministic) {
    notes.push_back(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
  }
  engine->SetInts(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, notes);
  engine->SetInts(CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
                  {CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION});
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t FinalizeEngineConfig(Descriptor* config) {
  const Descriptor& engine = *config->Child(CUDNN_ATTR_ENGINECFG_ENGINE);
  if (config->Has(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES)) {
    return Fail(CUDNN_STATUS_BAD_PARAM, "the engine has no settings to choose");
  }
  config->engine = engine.engine;
  config->program = engine.program;
  config->SetInts(CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE, CUDNN_TYPE_INT64,
                  {WorkspaceBytes(*config->program, *config->engine)});
  config->SetInts(CUDNN_ATTR_ENGINECFG_SHARED_MEMORY_USED, CUDNN_TYPE_INT64, {0});
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace cudnn

void RefuseConvolutions(std::function<bool(const ConvolutionShape&)> refuses) {
  std::lock_guard lock(cudnn::refusal_mutex);
  cudnn::Refusal() = std::move(refuses);
}

void RefuseAttention(bool refuses) {
  cudnn::refuses_attention = refuses;
}

}  // namespace trainyard::cuda_on_cpu

// Reads the spec from the assignment and finds the rank's place in the gang.
#include "worker/trainer/run/run_setup.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/parallel/replicas.h"
#include "worker/trainer/plan/data_setup.h"
#include "worker/trainer/plan/memory.h"
#include "worker/trainer/plan/model_setup.h"
#include "worker/trainer/plan/spec.h"

namespace trainyard::trainer {

absl::StatusOr<RunSetup> ReadRunSetup(const run_dir::RunDir& dir,
                                      const run_dir::Assignment& assignment, int rank,
                                      bool may_share_memory) {
  RunSetup setup;
  setup.run_dir = dir;
  setup.assignment = assignment;
  setup.rank = rank;
  TY_ASSIGN_OR_RETURN(setup.spec, ParseSpec(assignment.spec_json));
  const int stages = setup.spec.stages().count();
  const int ranks = assignment.world_size;
  if (ranks % stages != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(ranks, " ranks; expected a multiple of the ", stages, " stages"));
  }
  setup.place = {.stage = rank % stages,
                 .stages = stages,
                 .pipeline = rank / stages,
                 .pipelines = ranks / stages};
  setup.replicas = ReplicaCount(setup.spec.train(), setup.place.pipelines);
  TY_RETURN_IF_ERROR(
      parallel::HostedReplicas(setup.replicas, setup.place.pipeline, setup.place.pipelines)
          .status());
  setup.dataset_options = MakeDatasetOptions(setup.spec, assignment.dataset_dir);
  setup.memory_bytes = MemoryOfRank(assignment, rank);
  const bool is_one_host = static_cast<int>(assignment.ranks.size()) == ranks;
  setup.shares_memory = may_share_memory && is_one_host && ranks > 1;
  setup.is_bitwise = IsBitwise(setup.spec);
  return setup;
}

}  // namespace trainyard::trainer

// Asks a Slurm for pilots, through its own programs: they are on every site, and run as the user
// whose jobs the pilots are for.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/base/env.h"
#include "common/command/command.h"
#include "server/provision/cluster.h"
#include "server/provision/core/inputs.h"
#include "server/provision/core/provider.h"
#include "server/provision/slurm/script.h"

namespace trainyard::provision::slurm {

// Returns those variables of `environment` that the programs of Slurm need. Others would change
// what they print and ask for (SQUEUE_FORMAT, SLURM_CLUSTERS, SBATCH_ACCOUNT), and would be handed
// on to pilots.
std::vector<std::string> CleanEnvironment(const std::vector<std::string>& environment);

// The adapter. Every call runs programs and waits for them, at most kCallTimeout for each; one
// thread makes them. It borrows the clock and the flag of stopping, and keeps nothing between
// calls.
class Slurm : public Cluster {
 public:
  Slurm(std::string server_id, ProviderSpec spec, SlurmOptions options,
        const std::vector<std::string>& environment, Clock& clock,
        const std::atomic<bool>& is_stopping);

  // Lets Slurm check what a pilot would ask for, without asking for it (sbatch --test-only). A held
  // job that is cancelled again would prove less: Slurm accepts jobs that no node can ever hold,
  // and tells so only when it looks for nodes; and it could be left behind. Returns what
  // CheckSlurmOptions returns, FAILED_PRECONDITION (PROVIDER_REFUSES) with Slurm's reason, or what
  // running the program returned.
  absl::Status TryOut() const override;

  // Asks for a pilot. `tokens` has the join token of each of its workers, by node.
  SubmitResult Submit(const std::string& pilot,
                      const std::vector<std::string>& tokens) const override;

  // Lists all allocations of this server. Those of `foreign_ids` that squeue has forgotten are
  // looked up in accounting, and else at the controller; if neither knows one, the listing lacks
  // it.
  Listing List(const std::vector<std::string>& foreign_ids) const override;

  // Cancels an allocation. OK if it has ended already.
  absl::Status Cancel(const std::string& foreign_id) const override;

  // Removes the tokens of a pilot, once it has connected or ended.
  void DropTokens(const std::string& pilot) const override;

 private:
  absl::StatusOr<CommandResult> Call(std::vector<std::string> words, std::string input = "") const;
  std::vector<ListedPilot> LookUp(const std::vector<std::string>& foreign_ids) const;

  const std::string server_id_;
  const std::string prefix_;  // of the names of all pilots of this server
  const ProviderSpec spec_;
  const SlurmOptions options_;
  const std::vector<std::string> environment_;
  Clock& clock_;
  const std::atomic<bool>& is_stopping_;
};

// Slurm's programs try for about ten seconds to reach a controller that is down.
inline constexpr absl::Duration kCallTimeout = absl::Seconds(30);
// So many allocations are looked up in a turn: more must wait for the next one.
inline constexpr size_t kLookUpsMax = 50;

}  // namespace trainyard::provision::slurm

// The verbs, one file each.
#pragma once

#include <vector>

#include "client/commands/context.h"

namespace trainyard::commands {

// Runs the verb of the options, tells errors, and gives the exit code. `verbs` is for completion.
link::ExitCode Run(const Context& context, const std::vector<VerbInfo>& verbs);

Result Submit(const Context& context);
Result Clone(const Context& context);
Result List(const Context& context);
Result Plan(const Context& context);
Result Explain(const Context& context);
Result Top(const Context& context);
Result Show(const Context& context);
Result Watch(const Context& context);
Result Logs(const Context& context);
Result Metrics(const Context& context);
Result Trace(const Context& context);
Result BenchScaling(const Context& context);
Result Cancel(const Context& context);
Result Suspend(const Context& context);
Result Resume(const Context& context);
Result Diff(const Context& context);
Result Wait(const Context& context);
Result ListCheckpoints(const Context& context);
Result GetCheckpoint(const Context& context);
Result VerifyCheckpoint(const Context& context);
Result ListWorkers(const Context& context);
Result Cordon(const Context& context);
Result Uncordon(const Context& context);
Result DeclareLost(const Context& context);
Result Drain(const Context& context);
Result ListDevices(const Context& context);
Result Quarantine(const Context& context);
Result Release(const Context& context);
Result ListQuotas(const Context& context);
Result SetQuota(const Context& context);
Result DeleteQuotas(const Context& context);
Result ListReservations(const Context& context);
Result CreateReservation(const Context& context);
Result DeleteReservations(const Context& context);
Result ListShares(const Context& context);
Result ListData(const Context& context);
Result VerifyData(const Context& context);
Result FetchData(const Context& context);
Result Up(const Context& context);
Result Down(const Context& context);
Result Completion(const Context& context, const std::vector<VerbInfo>& verbs);
Result PrintVersion(const Context& context);

}  // namespace trainyard::commands

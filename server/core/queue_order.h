// Who comes first in the queue.
#pragma once

#include <vector>

#include "server/core/placement.h"

namespace trainyard::core {

// By priority, larger first, then by number: jobs are numbered as they are submitted, so a job that
// comes back from a failure has the place that it had.
void OrderQueue(std::vector<QueuedJob>& queue);

}  // namespace trainyard::core

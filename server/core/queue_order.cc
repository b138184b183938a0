#include "server/core/queue_order.h"

#include <algorithm>

namespace trainyard::core {

void OrderQueue(std::vector<QueuedJob>& queue) {
  std::sort(queue.begin(), queue.end(), [](const QueuedJob& a, const QueuedJob& b) {
    if (a.priority != b.priority) return a.priority > b.priority;
    return a.id < b.id;
  });
}

}  // namespace trainyard::core

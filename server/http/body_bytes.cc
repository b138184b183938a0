// A client has an entry as long as it has bytes.
#include "server/http/body_bytes.h"

namespace trainyard::http {

bool BodyBytes::Share::GrowTo(size_t size) {
  if (size <= size_) return true;
  const size_t more = size - size_;
  const MutexLock lock(&bytes_.mutex_);
  const auto known = bytes_.by_client_.find(client_);
  const size_t own = known == bytes_.by_client_.end() ? 0 : known->second;
  if (own + more > bytes_.client_max_ || bytes_.all_ + more > bytes_.all_max_) return false;
  bytes_.by_client_[client_] = own + more;
  bytes_.all_ += more;
  size_ = size;
  return true;
}

BodyBytes::Share::~Share() {
  if (size_ == 0) return;
  const MutexLock lock(&bytes_.mutex_);
  bytes_.all_ -= size_;
  const auto known = bytes_.by_client_.find(client_);
  known->second -= size_;
  if (known->second == 0) bytes_.by_client_.erase(known);
}

}  // namespace trainyard::http

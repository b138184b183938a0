// Streams that miss the same message at once each write it, so that no stream waits for another.
#include "server/http/json_cache.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <utility>

#include "common/base/status_macros.h"
#include "server/http/json.h"

namespace trainyard::http {
namespace {

// At least so many messages fit in.
constexpr size_t kMessagesMin = 100;

// Entries of maps are written in order, so that equal messages have equal keys.
std::string KeyOf(const google::protobuf::Message& message) {
  std::string key = message.GetDescriptor()->full_name();
  key.push_back('\0');
  google::protobuf::io::StringOutputStream stream(&key);
  google::protobuf::io::CodedOutputStream output(&stream);
  output.SetSerializationDeterministic(true);
  message.SerializePartialToCodedStream(&output);
  output.Trim();
  return key;
}

}  // namespace

absl::StatusOr<JsonCache::Text> JsonCache::ToJson(const google::protobuf::Message& message) {
  const bool is_kept = message.ByteSizeLong() <= bytes_max_ / kMessagesMin;
  std::string key = is_kept ? KeyOf(message) : "";
  if (is_kept) {
    const MutexLock lock(&mutex_);
    const auto found = texts_.find(key);
    if (found != texts_.end()) return found->second;
  }
  TY_ASSIGN_OR_RETURN(std::string json, http::ToJson(message));
  Text text = std::make_shared<const std::string>(std::move(json));
  if (!is_kept) return text;
  const MutexLock lock(&mutex_);
  const auto [entry, is_new] = texts_.emplace(std::move(key), text);
  if (!is_new) return text;
  keys_.push_back(&entry->first);
  bytes_ += entry->first.size() + text->size();
  while (bytes_ > bytes_max_) {
    const auto oldest = texts_.find(*keys_.front());
    keys_.pop_front();
    bytes_ -= oldest->first.size() + oldest->second->size();
    texts_.erase(oldest);
  }
  return text;
}

}  // namespace trainyard::http

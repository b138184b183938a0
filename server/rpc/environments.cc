// Parses the JSON of environments.
#include "server/rpc/environments.h"

#include "google/protobuf/util/json_util.h"

namespace trainyard::rpc {

v1::ProgramEnvironment ReadEnvironment(const runtime::LogStore& logs, AttemptId attempt,
                                       size_t& bytes) {
  bytes = 0;
  const runtime::LogId id = {attempt, 0, runtime::RankStream::kEnvironment};
  const auto text = logs.Read(id, 0, runtime::LogStore::kEnvironmentBytesMax);
  if (!text.ok() || text->empty()) return {};
  bytes = text->size();
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  v1::ProgramEnvironment environment;
  // The process of a user has written it, so it may be anything.
  const auto parsed = google::protobuf::util::JsonStringToMessage(*text, &environment, options);
  return parsed.ok() ? environment : v1::ProgramEnvironment();
}

}  // namespace trainyard::rpc

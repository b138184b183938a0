// Prints the JSON Schema of job specs. Run it after a change of the proto files:
//   build/dev/bin/trainyard-schema > jobs/job-spec.schema.json
#include <cstdio>

#include "client/schema/json_schema.h"
#include "common/base/files.h"

int main() {
  const auto descriptors = trainyard::ReadFile(TRAINYARD_SPEC_DESCRIPTORS);
  const auto schema = descriptors.ok() ? trainyard::schema::JobSpecSchema(*descriptors)
                                       : absl::StatusOr<std::string>(descriptors.status());
  if (!schema.ok()) {
    std::fprintf(stderr, "trainyard-schema: %s\n", schema.status().ToString().c_str());
    return 1;
  }
  std::fputs(schema->c_str(), stdout);
  return 0;
}

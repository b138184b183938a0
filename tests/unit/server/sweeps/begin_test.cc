// Tests how the beginning of a trial's job is kept.
#include "server/sweeps/begin.h"

#include <gtest/gtest.h>

namespace trainyard::sweeps {
namespace {

TEST(Begin, IsReadBackAsItWasWritten) {
  for (const Begin& begin :
       {Begin{}, Begin{{{"optimizer.sgd.lr", "0.1"}, {"data.dataset", "\"a \\\"b\\\"\""}}, {}},
        Begin{{{"model.mlp.hidden", "[1,2]"}}, core::CheckpointRef{JobId{12}, 40}}}) {
    const auto read = BeginFromText(ToText(begin));
    ASSERT_TRUE(read.ok()) << read.status() << ToText(begin);
    EXPECT_EQ(*read, begin);
  }
}

TEST(Begin, OtherTextsAreRefused) {
  for (const char* text : {"", "{", "[]", "{}", R"({"values": 1})", R"({"values": {"a": 1}})",
                           R"({"values": {}, "from": 3})", R"({"values": {}, "from": "jobs/1"})"}) {
    EXPECT_EQ(BeginFromText(text).status().code(),
              *text == '{' && std::string(text).find("jobs/1") != std::string::npos
                  ? absl::StatusCode::kInvalidArgument
                  : absl::StatusCode::kDataLoss)
        << text;
  }
}

}  // namespace
}  // namespace trainyard::sweeps

// Tests messages as JSON and YAML.
#include "client/output/proto_text.h"

#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include "client/spec_loader/spec_file.h"
#include "common/base/files.h"
#include "common/spec/resolve.h"
#include "tests/testing/paths.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::output {
namespace {

TEST(ProtoText, JsonKeepsTheFieldNames) {
  v1::Job job;
  job.set_name("jobs/1");
  job.set_state(v1::JOB_STATE_QUEUED);
  job.add_queue_reasons("because");
  EXPECT_EQ(ProtoJson(job, false),
            R"({"name":"jobs/1","state":"JOB_STATE_QUEUED","queue_reasons":["because"]})");
}

TEST(ProtoText, YamlQuotesWhatWouldReadAsSomethingElse) {
  EXPECT_EQ(JsonToYaml(R"({"a":{"b":[1,2.5],"c":{}},"d":[{"e":"x y","f":"12"},{"e":"no"}],)"
                       R"("g":"a: b","h":null,"i":[],"j":"1 epoch"})"),
            "a:\n"
            "  b: [1, 2.5]\n"
            "  c: {}\n"
            "d:\n"
            "  - e: x y\n"
            "    f: \"12\"\n"
            "  - e: \"no\"\n"
            "g: \"a: b\"\n"
            "h: null\n"
            "i: []\n"
            "j: 1 epoch\n");
  EXPECT_EQ(JsonToYaml("[]"), "[]\n");
  EXPECT_EQ(JsonToYaml("no json"), "no json");
}

// Whatever a spec holds, its YAML is read back as the same spec: the specs of jobs/, resolved.
TEST(ProtoText, TheYamlOfASpecReadsBackAsTheSameSpec) {
  for (const std::string name :
       {"convnet-cifar10", "convnet-fashion-mnist", "convnet-glyphs", "mlp-glyphs"}) {
    const std::string path = trainyard::testing::SourcePath("jobs/" + name + ".yaml");
    const auto file = spec_loader::ReadSpecFile(path);
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE(file->mistakes.empty()) << spec_loader::RenderMistakes(*file, false);
    const auto resolved = spec::ResolveSpec(file->spec);
    ASSERT_TRUE(resolved.ok()) << resolved.status();
    for (const v1::JobSpec& spec : {file->spec, *resolved}) {
      const auto again = spec_loader::ParseSpecFile("again", SpecYaml(spec));
      EXPECT_TRUE(again.mistakes.empty()) << spec_loader::RenderMistakes(again, false);
      EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(spec, again.spec))
          << SpecYaml(spec);
    }
  }
}

}  // namespace
}  // namespace trainyard::output

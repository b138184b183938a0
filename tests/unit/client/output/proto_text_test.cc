// Tests messages as JSON and YAML.
#include "client/output/proto_text.h"

#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

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

TEST(ProtoText, APointOfAMetricHasItsValueAlsoIfThatIsZero) {
  v1::MetricPoint point;
  point.set_name("train.errors");
  EXPECT_EQ(ProtoJson(point, false), R"({"step":0,"name":"train.errors","value":0.0,"attempt":0})");
}

TEST(ProtoText, NumbersAreNumbersWhileTheyAreExact) {
  v1::Job job;
  job.mutable_progress()->set_step(7);
  job.mutable_progress()->set_total_steps((int64_t{1} << 53) + 1);
  job.mutable_progress()->set_samples_per_s(2.5);
  job.mutable_progress()->mutable_eta()->set_seconds(3);
  job.mutable_create_time()->set_seconds(1);
  (*job.mutable_final_metrics())["b"] = 0.5;
  (*job.mutable_final_metrics())["a"] = std::nan("");
  const auto json = nlohmann::json::parse(ProtoJson(job, true));
  EXPECT_EQ(json["progress"]["step"], 7);
  EXPECT_EQ(json["progress"]["total_steps"], "9007199254740993");
  EXPECT_EQ(json["progress"]["samples_per_s"], 2.5);
  EXPECT_EQ(json["progress"]["eta"], "3s");
  EXPECT_EQ(json["create_time"], "1970-01-01T00:00:01Z");
  EXPECT_EQ(json["final_metrics"].dump(), R"({"a":"NaN","b":0.5})");
}

// `trainyard show 1 -o json | jq .spec > s.json; trainyard submit s.json`
TEST(ProtoText, TheSpecOfAJobReadsBackFromJsonAsTheSameSpec) {
  for (const std::string name : {"convnet-cifar10", "mlp-glyphs", "gpt2-tinyshakespeare"}) {
    const auto file =
        spec_loader::ReadSpecFile(trainyard::testing::SourcePath("jobs/" + name + ".yaml"));
    ASSERT_TRUE(file.ok()) << file.status();
    v1::Job job;
    *job.mutable_spec() = file->spec;
    *job.mutable_resolved_spec() = *spec::ResolveSpec(file->spec);
    const auto json = nlohmann::json::parse(ProtoJson(job, true));
    for (const char* member : {"spec", "resolved_spec"}) {
      const auto again = spec_loader::ParseSpecFile("again", json[member].dump(1));
      EXPECT_TRUE(again.mistakes.empty()) << spec_loader::RenderMistakes(again, false);
      const v1::JobSpec& spec = member == std::string("spec") ? job.spec() : job.resolved_spec();
      EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(spec, again.spec))
          << json[member];
    }
  }
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

TEST(ProtoText, TheSpecOfAProgramReadsBackAsTheSameSpec) {
  v1::JobSpec spec;
  spec.set_name("a");
  v1::ProgramSpec& program = *spec.mutable_program();
  program.set_script("#!/bin/sh\necho 'one: two' # three\n\n  exit 0\n");
  (*program.mutable_params())["lr"] = "0.5";
  (*program.mutable_params())["name"] = "\"1.10\"";
  (*program.mutable_params())["mode"] = "cosine";
  (*program.mutable_params())["words"] = "[\"a\",\"2\"]";
  (*program.mutable_env())["FLAG"] = "false";
  for (const char* setup :
       {"a", "a\n", "a\nb", "a\nb\n\n", " a\nb", "\na", "a\r\nb", "- a\nb: c"}) {
    program.mutable_environment()->set_setup(setup);
    const std::string yaml = SpecYaml(spec);
    const auto file = spec_loader::ParseSpecFile("job.yaml", yaml);
    EXPECT_TRUE(file.mistakes.empty()) << yaml;
    EXPECT_EQ(file.spec.SerializeAsString().size(), spec.SerializeAsString().size()) << yaml;
    EXPECT_EQ(file.spec.program().script(), program.script()) << yaml;
    EXPECT_EQ(file.spec.program().environment().setup(), setup) << yaml;
    EXPECT_EQ(file.spec.program().params().at("name"), "\"1.10\"") << yaml;
    EXPECT_EQ(file.spec.program().params().at("mode"), "cosine") << yaml;
    EXPECT_EQ(file.spec.program().env().at("FLAG"), "false") << yaml;
  }
  EXPECT_NE(SpecYaml(spec).find("script: |"), std::string::npos);
}

}  // namespace
}  // namespace trainyard::output

// Tests that the schema made from the proto files is the one in jobs/.
#include "client/schema/json_schema.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "common/base/files.h"
#include "tests/testing/paths.h"

namespace trainyard::schema {
namespace {

std::string Generated() {
  const auto descriptors = ReadFile(TRAINYARD_SPEC_DESCRIPTORS);
  EXPECT_TRUE(descriptors.ok()) << descriptors.status();
  const auto schema = JobSpecSchema(*descriptors);
  EXPECT_TRUE(schema.ok()) << schema.status();
  return schema.value_or("");
}

TEST(JsonSchema, TheCommittedFileIsWhatTheProtoFilesSay) {
  const auto committed = ReadFile(trainyard::testing::SourcePath("jobs/job-spec.schema.json"));
  ASSERT_TRUE(committed.ok()) << committed.status();
  EXPECT_EQ(*committed, Generated()) << "run bin/trainyard-schema > jobs/job-spec.schema.json";
}

TEST(JsonSchema, FieldsCarryCommentsLimitsAndDefaults) {
  const auto schema = nlohmann::json::parse(Generated());
  EXPECT_EQ(schema["required"], nlohmann::json::parse(R"(["name"])"));
  EXPECT_EQ(schema["allOf"], nlohmann::json::parse(R"([{"anyOf": [
      {"required": ["program"]}, {"required": ["model", "data", "train", "optimizer"]}]}])"));
  const auto& batch = schema["definitions"]["TrainSpec"]["properties"]["global_batch"];
  EXPECT_EQ(batch["description"], "Samples in one step, over all replicas.");
  EXPECT_EQ(batch["type"], "integer");
  EXPECT_EQ(batch["minimum"], 1);
  EXPECT_EQ(batch["default"], 64);
  const auto& lr = schema["definitions"]["SgdOptimizer"]["properties"]["lr"];
  EXPECT_EQ(lr["exclusiveMinimum"], 0);
  const auto& normalize = schema["definitions"]["DataSpec"]["properties"]["normalize"];
  EXPECT_EQ(normalize["enum"], nlohmann::json::parse(R"(["dataset", "unit"])"));
}

TEST(JsonSchema, ShorthandsAndBareWordsAreAccepted) {
  const auto schema = nlohmann::json::parse(Generated());
  const auto& devices = schema["properties"]["devices"]["anyOf"];
  EXPECT_EQ(devices[0]["$ref"], "#/definitions/DevicesSpec");
  EXPECT_EQ(devices[1]["type"], "integer");
  const auto& schedule = schema["properties"]["schedule"]["anyOf"];
  EXPECT_EQ(schedule[1]["enum"],
            nlohmann::json::parse(R"(["constant", "step", "cosine", "polynomial"])"));
}

TEST(JsonSchema, WhatIsNoDescriptorSetIsRefused) {
  EXPECT_FALSE(JobSpecSchema("no descriptors").ok());
  EXPECT_EQ(JobSpecSchema("").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace trainyard::schema

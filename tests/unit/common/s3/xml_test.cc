#include "common/s3/xml.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace trainyard::s3 {
namespace {

std::string ListOf(const std::string& inside) {
  return absl::StrCat(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult xmlns=\"http://"
      "s3.amazonaws.com/doc/2006-03-01/\">",
      inside, "</ListBucketResult>");
}

TEST(S3Xml, AListIsRead) {
  const auto page = ParseList(ListOf(
      "<IsTruncated>true</IsTruncated><NextContinuationToken>t/&amp;=</NextContinuationToken>"
      "<Contents><Key>a &lt;b&gt;</Key><Size>17</Size><ETag>&quot;abc&quot;</ETag>"
      "<LastModified>2026-11-28T10:00:00.500Z</LastModified></Contents>"));
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_EQ(page->next, "t/&=");
  ASSERT_EQ(page->objects.size(), 1u);
  EXPECT_EQ(page->objects[0].key, "a <b>");
  EXPECT_EQ(page->objects[0].etag, "\"abc\"");
  EXPECT_EQ(page->objects[0].size, 17);
  EXPECT_EQ(page->objects[0].modified, absl::FromUnixSeconds(1795860000) + absl::Milliseconds(500));
}

TEST(S3Xml, ListsThatMakeNoSenseAreRefused) {
  const std::string time = "<LastModified>2026-11-28T10:00:00Z</LastModified>";
  for (const std::string& xml : {
           std::string(),
           std::string("<html>no</html>"),
           ListOf("").substr(0, 60),
           ListOf("<Contents><Size>1</Size>" + time + "</Contents>"),
           ListOf("<Contents><Key>a</Key><Size>-1</Size>" + time + "</Contents>"),
           ListOf("<Contents><Key>a</Key><Size>99999999999999999999</Size>" + time + "</Contents>"),
           ListOf("<Contents><Key>a</Key><Size>1</Size></Contents>"),
           ListOf("<Contents><Key>" + std::string(1025, 'k') + "</Key><Size>1</Size>" + time +
                  "</Contents>"),
           // A page that says there is more, and does not say where, would be read for ever.
           ListOf("<IsTruncated>true</IsTruncated>"),
       }) {
    EXPECT_TRUE(absl::IsDataLoss(ParseList(xml).status())) << xml;
  }
}

TEST(S3Xml, EntitiesOfTheDocumentAreNotExpanded) {
  const std::string xml =
      "<!DOCTYPE x [<!ENTITY a \"aaaaaaaaaa\"><!ENTITY f SYSTEM \"file:///etc/passwd\">]>"
      "<Error><Code>Bad</Code><Message>&a;&f;</Message></Error>";
  EXPECT_EQ(ParseError(xml).code, "Bad");
  EXPECT_EQ(ParseError(xml).message, "&a;&f;");
}

TEST(S3Xml, DeepNestingIsNoProblem) {
  std::string xml;
  for (int i = 0; i < 200'000; ++i) xml += "<a>";
  EXPECT_EQ(ParseError(xml).code, "");
}

TEST(S3Xml, MessagesOfStoresAreMadePrintable) {
  EXPECT_EQ(ParseError("<Error><Code>A</Code><Message>a\x1b[1mb</Message></Error>").message,
            "a?[1mb");
  EXPECT_LE(
      ParseError("<Error><Message>" + std::string(5000, 'x') + "</Message></Error>").message.size(),
      500u);
}

TEST(S3Xml, AnUploadIsCompletedWithItsPartsInOrder) {
  EXPECT_EQ(CompleteText({"\"e1\"", "\"<2>\""}),
            "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
            "<Part><PartNumber>1</PartNumber><ETag>\"e1\"</ETag></Part>"
            "<Part><PartNumber>2</PartNumber><ETag>\"&lt;2&gt;\"</ETag></Part>"
            "</CompleteMultipartUpload>");
  EXPECT_EQ(*ParseUploadId("<InitiateMultipartUploadResult><UploadId>2~x</UploadId>"
                           "</InitiateMultipartUploadResult>"),
            "2~x");
  EXPECT_FALSE(ParseUploadId("<InitiateMultipartUploadResult/>").ok());
  EXPECT_EQ(*ParseCompleted("<CompleteMultipartUploadResult><ETag>\"a-2\"</ETag>"
                            "</CompleteMultipartUploadResult>"),
            "\"a-2\"");
  EXPECT_FALSE(ParseCompleted("<Error><Code>InternalError</Code></Error>").ok());
  EXPECT_FALSE(ParseCompleted("<CompleteMultipartUploadResult/>").ok()) << "it has no ETag";
}

}  // namespace
}  // namespace trainyard::s3

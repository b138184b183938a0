// Adapts pugixml, which knows no entities but those of XML itself and does not recurse.
#include "common/s3/xml.h"

#include <pugixml.hpp>

#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"

namespace trainyard::s3 {
namespace {

constexpr size_t kMessageBytesMax = 500;
constexpr size_t kTokenBytesMax = 4096;
constexpr size_t kObjectsMax = 10'000;  // S3 sends 1,000

absl::Status NotUnderstood(absl::string_view what, absl::string_view xml) {
  return absl::DataLossError(absl::StrCat("the store's answer is no ", what, ": ",
                                          PlainText(std::string(xml.substr(0, 200)), 200)));
}

// Returns the root of that name, or nothing. `document` owns it. Prefixes of namespaces are not
// used by any store.
pugi::xml_node RootOf(pugi::xml_document& document, absl::string_view xml, const char* name) {
  const pugi::xml_parse_result result =
      document.load_buffer(xml.data(), xml.size(), pugi::parse_default, pugi::encoding_utf8);
  return result ? document.child(name) : pugi::xml_node();
}

}  // namespace

ErrorDocument ParseError(absl::string_view xml) {
  pugi::xml_document document;
  const pugi::xml_node root = RootOf(document, xml, "Error");
  return {PlainText(root.child_value("Code"), 100),
          PlainText(root.child_value("Message"), kMessageBytesMax),
          PlainText(root.child_value("Region"), 100)};
}

absl::StatusOr<ListPage> ParseList(absl::string_view xml) {
  pugi::xml_document document;
  const pugi::xml_node root = RootOf(document, xml, "ListBucketResult");
  if (!root) return NotUnderstood("list of objects", xml);
  ListPage page;
  for (const pugi::xml_node entry : root.children("Contents")) {
    ListedObject object;
    object.key = entry.child_value("Key");
    object.etag = entry.child_value("ETag");
    std::string error;
    if (object.key.empty() || object.key.size() > kKeyBytesMax ||
        object.etag.size() > kTokenBytesMax || page.objects.size() >= kObjectsMax ||
        !absl::SimpleAtoi(entry.child_value("Size"), &object.size) || object.size < 0 ||
        !absl::ParseTime(absl::RFC3339_full, entry.child_value("LastModified"), &object.modified,
                         &error)) {
      return NotUnderstood("list of objects with sizes and times", xml);
    }
    page.objects.push_back(std::move(object));
  }
  if (std::strcmp(root.child_value("IsTruncated"), "true") == 0) {
    page.next = root.child_value("NextContinuationToken");
    if (page.next.empty() || page.next.size() > kTokenBytesMax) {
      return NotUnderstood("list that can be continued", xml);
    }
  }
  return page;
}

absl::StatusOr<std::string> ParseUploadId(absl::string_view xml) {
  pugi::xml_document document;
  std::string id = RootOf(document, xml, "InitiateMultipartUploadResult").child_value("UploadId");
  if (id.empty() || id.size() > kTokenBytesMax) return NotUnderstood("multipart upload", xml);
  return id;
}

absl::StatusOr<std::string> ParseCompleted(absl::string_view xml) {
  pugi::xml_document document;
  const pugi::xml_node root = RootOf(document, xml, "CompleteMultipartUploadResult");
  std::string etag = root.child_value("ETag");
  if (etag.empty() || etag.size() > kTokenBytesMax) return NotUnderstood("completed upload", xml);
  return etag;
}

absl::StatusOr<AssumedRole> ParseAssumedRole(absl::string_view xml) {
  pugi::xml_document document;
  const pugi::xml_node node = RootOf(document, xml, "AssumeRoleWithWebIdentityResponse")
                                  .child("AssumeRoleWithWebIdentityResult")
                                  .child("Credentials");
  AssumedRole role;
  Credentials& credentials = role.credentials;
  credentials = {node.child_value("AccessKeyId"), node.child_value("SecretAccessKey"),
                 node.child_value("SessionToken")};
  for (const std::string* text :
       {&credentials.access_key_id, &credentials.secret_access_key, &credentials.session_token}) {
    // The text of such an answer is a secret, so the message has none of it.
    if (text->empty() || text->size() > kTokenBytesMax) {
      return absl::DataLossError("the answer has no keys of a role");
    }
  }
  std::string error;
  absl::Time expire_time;
  if (absl::ParseTime(absl::RFC3339_full, node.child_value("Expiration"), &expire_time, &error)) {
    role.expire_time = expire_time;
  }
  return role;
}

std::string CompleteText(const std::vector<std::string>& etags) {
  pugi::xml_document document;
  pugi::xml_node root = document.append_child("CompleteMultipartUpload");
  root.append_attribute("xmlns") = "http://s3.amazonaws.com/doc/2006-03-01/";
  for (size_t i = 0; i < etags.size(); ++i) {
    pugi::xml_node part = root.append_child("Part");
    part.append_child("PartNumber").text() = static_cast<unsigned int>(i + 1);
    part.append_child("ETag").text() = etags[i].c_str();
  }
  struct Writer : pugi::xml_writer {
    std::string text;
    void write(const void* data, size_t size) override {
      text.append(static_cast<const char*>(data), size);
    }
  } writer;
  document.save(writer, "", pugi::format_raw | pugi::format_no_declaration);
  return writer.text;
}

}  // namespace trainyard::s3

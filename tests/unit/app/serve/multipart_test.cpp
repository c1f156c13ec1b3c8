#include "app/serve/multipart.h"

#include <gmock/gmock.h>

#include "hilbert/error.h"

namespace sparsereel::app::serve {
namespace {

constexpr const char* kType = "multipart/form-data; boundary=limit";

std::string part(const std::string& parameters, const std::string& content) {
  return "--limit\r\nContent-Disposition: form-data; " + parameters + "\r\n\r\n" + content + "\r\n";
}

/// Returns each part of the form as "name=content", with '@' before the name of a file part. Returns the error if the
/// body is refused.
std::vector<std::string> parse(const std::string& body, const std::string& type = kType) {
  std::vector<std::string> all;
  try {
    for (const HttpPart& each : parse_multipart(body, type))
      all.push_back((each.is_file ? "@" : "") + each.name + "=" + each.content);
  } catch (const Error& error) {
    all = {std::string("error: ") + error.what()};
  }
  return all;
}

TEST(Multipart, HasNamesAndContents) {
  using testing::ElementsAre;
  EXPECT_THAT(parse(part("name=\"a\"", "1\r\n--limi") + part("name=b; filename=\"x;\\\"y.png\"", "") + "--limit--\r\n"),
              ElementsAre("a=1\r\n--limi", "@b="));
  EXPECT_THAT(
      parse("--limit\r\nX: y\r\ncontent-disposition: form-data; filename=\"\"; name=\"a;=\"\r\n\r\nz\r\n--limit--",
            "Multipart/Form-Data; charset=utf-8; Boundary=\"limit\""),
      ElementsAre("a;==z"));
  EXPECT_THAT(parse("--limit--\r\n"), ElementsAre());
  EXPECT_TRUE(is_form_type("multipart/Form-data ; boundary=x"));
  EXPECT_FALSE(is_form_type("multipart/form-datax"));
  EXPECT_FALSE(is_form_type("application/json"));
}

TEST(Multipart, RefusesWhatIsNoForm) {
  using testing::ElementsAre;
  using testing::StartsWith;
  const auto refused = ElementsAre(StartsWith("error: the form "));
  for (const char* body :
       {"", "x", "--limit", "--limit\r\n", "--limitx\r\n", "--limit\r\n\r\n\r\n--limit--", "--limit-"})
    EXPECT_THAT(parse(body), refused) << body;
  EXPECT_THAT(parse(part("name=a", "x")), refused);  // the last boundary is missing
  EXPECT_THAT(parse(part("filename=a", "x") + "--limit--"), refused);
  EXPECT_THAT(parse("--limit--", "multipart/form-data"), refused);
  EXPECT_THAT(parse("--limit--", "multipart/form-data; boundary=" + std::string(71, 'x')), refused);
  EXPECT_THAT(parse(part("name=" + std::string(size_t{2} << 20U, 'x'), "x") + "--limit--"), refused);
  std::string headers, many;
  for (int i = 0; i < 17; ++i) headers += "a: b\r\n";
  EXPECT_THAT(parse("--limit\r\n" + headers + "\r\n\r\n--limit--"), refused);
  for (int i = 0; i < 1025; ++i) many += part("name=a", "");
  EXPECT_THAT(parse(many + "--limit--"), refused);
}

}  // namespace
}  // namespace sparsereel::app::serve

// The XML reader: what is read, and what is refused with its line.
#include "topology/xml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti::topology {
namespace {

using testing::HasSubstr;

std::string refusal(const std::string& text) {
  const auto root = parse_xml(text);
  return root ? "accepted" : std::string(root.status().text());
}

TEST(XmlTest, ElementsAttributesAndTextAreRead) {
  const auto root = parse_xml(R"(<?xml version="1.0"?>
<!-- a comment with <tags> -->
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<a x="1" y='"2"'>
  one<b/> two
  <c z="&lt;&#65;&#x42;&amp;"><!-- inside --></c>
</a>
<!-- the end -->)");
  ASSERT_TRUE(root) << root.status().text();
  EXPECT_EQ(root->name, "a");
  EXPECT_EQ(root->line, 4u);
  EXPECT_EQ(root->value("x"), "1");
  EXPECT_EQ(root->value("y"), "\"2\"");
  EXPECT_EQ(root->attribute("none"), nullptr);
  EXPECT_THAT(root->text, HasSubstr("one"));
  EXPECT_THAT(root->text, HasSubstr("two"));
  ASSERT_EQ(root->children.size(), 2u);
  EXPECT_EQ(root->children[1].value("z"), "<AB&");
  EXPECT_EQ(root->children[1].line, 6u);
}

TEST(XmlTest, MistakesNameTheLine) {
  EXPECT_THAT(refusal(""), HasSubstr("line 1: expected an element"));
  EXPECT_THAT(refusal("<a>\n<b>\n</a>"), HasSubstr("line 3: expected </b> of line 2"));
  EXPECT_THAT(refusal("<a>\n<b x='1'"), HasSubstr("line 2: the file ends inside <b> of line 2"));
  EXPECT_THAT(refusal("<a>\ntext"), HasSubstr("the file ends inside <a> of line 1"));
  EXPECT_THAT(refusal("<a x='1' x='2'/>"), HasSubstr("stands twice"));
  EXPECT_THAT(refusal("<a x=1/>"), HasSubstr("a value in quotes"));
  EXPECT_THAT(refusal("<a x='1/>"), HasSubstr("does not end"));
  EXPECT_THAT(refusal("<a x='<'/>"), HasSubstr("'<' in a value"));
  EXPECT_THAT(refusal("<a/>\n<b/>"), HasSubstr("line 2: expected the end of the file"));
  EXPECT_THAT(refusal("<!-- "), HasSubstr("comment does not end"));
  EXPECT_THAT(refusal("<a><![CDATA[x]]></a>"), HasSubstr("expected the name of an element"));
}

// Goal: a file opens no other file and grows nowhere.
TEST(XmlTest, EntitiesAreRefused) {
  EXPECT_THAT(refusal("<!DOCTYPE a [<!ENTITY b \"bbbb\">]><a>&b;</a>"), HasSubstr("internal part"));
  EXPECT_THAT(refusal("<a>\n&b;</a>"), HasSubstr("an entity"));
  EXPECT_THAT(refusal("<a>&#0;</a>"), HasSubstr("an entity"));
  EXPECT_THAT(refusal("<a>&#99999999999;</a>"), HasSubstr("an entity"));
}

TEST(XmlTest, DepthAndElementsAreLimited) {
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "<a>\n";
  EXPECT_THAT(refusal(deep), HasSubstr("line 97: elements inside more than 96 others"));
  std::string wide = "<a>\n";
  for (int i = 0; i < 1'000'000; ++i) wide += "<b/>\n";
  EXPECT_THAT(refusal(wide + "</a>"), HasSubstr("line 262145: more than 262144 elements"));
}

TEST(XmlTest, EscapedTextIsReadBack) {
  const std::string odd = "<&\">'";
  const auto root = parse_xml("<a x=\"" + xml_escaped(odd) + "\"/>");
  ASSERT_TRUE(root);
  EXPECT_EQ(root->value("x"), odd);
}

}  // namespace
}  // namespace tutti::topology

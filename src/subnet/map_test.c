/* SPDX-License-Identifier: MIT */
#include "subnet/map.h"
#include "subnet/topo_make.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct subnet_ops nobody;
static const struct map_style plain = {.columns = 80};

static struct subnet *made(const char *spec)
{
	struct subnet *s = subnet_open(&nobody, NULL, 1);
	char err[TOPO_ERROR];

	assert_int_equal(topo_make(s, spec, 1, err), 0);
	return s;
}

static void small_subnet_is_shown_cable_by_cable(void **state)
{
	struct subnet *s = made("star:4");
	size_t len;
	char *text;

	subnet_find(s, "S1")->port[3].cut = subnet_find(s, "node3")->port[1].cut = true;
	text = map_text(s, &plain, &len);
	assert_string_equal(text, "switches  #                     1 switch: S1\n"
				  "          | 4 cables, 1 cut\n"
				  "hosts     oooo                  4 hosts: node1 ... node4\n"
				  "\n"
				  "S1      [1] node1    [2] node2    [3] x node3  [4] node4\n");
	free(text);
	subnet_close(s);
}

static void large_subnet_is_shown_by_its_rows(void **state)
{
	struct subnet *s = made("fat-tree:8");
	size_t len;
	char *text = map_text(s, &plain, &len);

	assert_string_equal(text, "level 3   ################      16 switches: core1 ... core16\n"
				  "          | 128 cables\n"
				  "level 2   ###################~  32 switches: agg1 ... agg32\n"
				  "          | 128 cables\n"
				  "level 1   ###################~  32 switches: edge1 ... edge32\n"
				  "          | 128 cables\n"
				  "hosts     ooooooooooooooooooo~  128 hosts: node1 ... node128\n");
	free(text);
	subnet_close(s);
}

static void cables_inside_a_row_are_told(void **state)
{
	struct subnet *s = made("ring:20");
	size_t len;
	char *text = map_text(s, &plain, &len);

	assert_non_null(strstr(text, "| 20 cables between them\n          | 20 cables\n"));
	free(text);
	subnet_close(s);
}

static unsigned occurrences(const char *text, const char *word)
{
	unsigned n = 0;

	for (; (text = strstr(text, word)); text++)
		n++;
	return n;
}

/* Every node and cable is drawn, once, and inside the picture. MAP_SVG_DIR keeps the pictures, for looking.
 */
static void pictures_have_all_nodes_and_cables(void **state)
{
	static const struct {
		const char *spec;
		unsigned switches, hosts, cables;
	} rows[] = {{"pair", 0, 2, 1}, {"star:4", 1, 4, 4}, {"ring:6", 6, 6, 12}, {"fat-tree:4", 20, 16, 48},
		{"tree:4,2,8", 6, 32, 40}, {"torus:4x4", 16, 16, 48}, {"dragonfly:4,2,2", 36, 72, 162},
		{"fat-tree:16", 320, 1024, 3072}};
	const char *dir = getenv("MAP_SVG_DIR");

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct subnet *s = made(rows[i].spec);
		size_t len;
		char *text, path[256];

		subnet_node(s, 0)->port[1].cut = subnet_node(s, 0)->port[1].peer->cut = true;
		text = map_svg(s, rows[i].spec, &len);
		assert_non_null(text);
		assert_int_equal(occurrences(text, "class=\"switch\""), rows[i].switches);
		assert_int_equal(occurrences(text, "class=\"host\""), rows[i].hosts);
		assert_int_equal(occurrences(text, "<line "), rows[i].cables);
		assert_int_equal(occurrences(text, "class=\"cut\""), 1);
		assert_int_equal(occurrences(text, "\"-"), 0);
		assert_int_equal(occurrences(text, "nan"), 0);
		if (dir) {
			snprintf(path, sizeof(path), "%s/%zu.svg", dir, i);
			FILE *f = fopen(path, "w");

			fwrite(text, 1, len, f);
			fclose(f);
		}
		free(text);
		subnet_close(s);
	}
}

static void names_cannot_break_a_picture(void **state)
{
	struct subnet *s = subnet_open(&nobody, NULL, 1);
	size_t len;
	char *text;

	assert_non_null(subnet_add(s, SUBNET_SWITCH, 4, "<script>&\xff"));
	text = map_svg(s, "a & b", &len);
	assert_null(strstr(text, "<script>"));
	assert_non_null(strstr(text, "&lt;script&gt;&amp;?"));
	free(text);
	subnet_close(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(small_subnet_is_shown_cable_by_cable),
		cmocka_unit_test(large_subnet_is_shown_by_its_rows),
		cmocka_unit_test(cables_inside_a_row_are_told),
		cmocka_unit_test(pictures_have_all_nodes_and_cables),
		cmocka_unit_test(names_cannot_break_a_picture),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

"""The SQL of a model: which queries are accepted, and how placeholders are filled in."""

import pytest

from platform_defs.arrivals.errors import ModelFailed
from platform_defs.arrivals.models.model import Kpi
from platform_defs.arrivals.models.sql import InvalidSql, check_expression, check_query, render_query
from platform_defs.sources.reach import Reach
from tests.arrivals.models.making import AMOUNT, model


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT ${dimGroup}, ${kpis} FROM t WHERE op_time = ${op_time} GROUP BY ${dimGroup}",
        "SELECT ${dimGroup}, ${kpis} FROM t WHERE op_time = '${op_time}' AND x = ':y' -- ${any} :thing\n GROUP BY 1;",
        "WITH a AS (SELECT * FROM t) SELECT Region, 1 AS KD1001 FROM a",
        "(SELECT * FROM t) UNION ALL SELECT * FROM u",
        "SELECT * FROM t WHERE a -> '$.b' = 1 AND c = 'C:\\'",  # SQLite alone reads this text as one
        "SELECT region, GROUP_CONCAT(x SEPARATOR ';') AS KD1001 FROM t",  # MySQL alone
    ],
)
def test_one_query_that_reads_is_taken(sql: str) -> None:
    check_query(sql, ["region"], [AMOUNT])


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("", "not 0 statements"),
        ("SELECT * FROM t; DROP TABLE t", "not 2 statements"),
        ("DELETE FROM t", "expected one read-only query"),
        ("SHOW TABLES", "expected one read-only query"),
        ("WITH a AS (SELECT 1) DELETE FROM t", "expected one read-only query"),
        ("WITH a AS (DELETE FROM t RETURNING *) SELECT * FROM a", "a statement that writes"),
        ("SELECT * INTO u FROM t", "found INTO"),
        ("SELECT 1 INTO @x", "found INTO"),
        ("SELECT * FROM t INTO OUTFILE '/tmp/x'", "does not parse"),
        ("SELECT * FROM t FOR UPDATE", "a locking clause"),
        ("SELECT * FROM t LOCK IN SHARE MODE", "a locking clause"),
        ("SELECT * FROM t WHERE x IN (SELECT y FROM z FOR SHARE SKIP LOCKED)", "a locking clause"),
        ("(SELECT * FROM t FOR UPDATE) UNION SELECT * FROM t", "a locking clause"),
        ("SELECT * FROM t /*!50000 FOR UPDATE */", "MySQL executes such a comment"),
        ("SELECT * FROM t WHERE 1--1 FOR UPDATE", "-- without a space"),
        ("SELECT * FROM t WHERE", "does not parse: incomplete at line 1"),
        ("SELECT * FROM t WHERE x = 'y", "does not parse"),
        ("SELECT * FROM t WHERE x = ?", "unknown parameter ?"),
        ("SELECT * FROM t WHERE x = :op_time", "unknown parameter :op_time"),
        ("SELECT ${nope} FROM t", "unknown placeholder ${nope}; known are ${op_time}, ${kpis}, ${dimGroup}"),
        ("SELECT * FROM t WHERE x = 'on ${op_time}'", "a placeholder stands alone"),
        ("SELECT * FROM `t_${op_time}`", "a placeholder stands alone"),
        ("SELECT ${kpis} FROM t", "does not select region"),
        ("SELECT region FROM t", "does not select KD1001"),
        ("SELECT " + "(" * 5000 + "1" + ")" * 5000, "nested too deeply"),
    ],
)
def test_what_is_no_such_query_is_refused_with_the_reason(sql: str, expected: str) -> None:
    with pytest.raises(InvalidSql) as caught:
        check_query(sql, ["region"], [AMOUNT])
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_model_without_dimensions_groups_by_none() -> None:
    check_query("SELECT ${kpis} FROM t", [], [AMOUNT])
    with pytest.raises(InvalidSql, match="without dimensions"):
        check_query("SELECT ${dimGroup}, ${kpis} FROM t", [], [AMOUNT])


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("SUM(a), 2", "one value"),
        ("SUM(a", "does not parse"),
        ("a) , (b", "does not parse"),
        ("a FROM t", "one value"),
        ("DISTINCT a", "one value"),
        ("a AS b", "without a name"),
        ("*", "without a name"),
        ("1; DROP TABLE t", "not 2 statements"),
        ("SUM(a) -- all", "a comment would swallow"),
        ("SUM(a) /* all */", "a comment would swallow"),
        ("${kpis}", "unknown placeholder"),
        ("(SELECT MAX(x) FROM y FOR UPDATE)", "a locking clause"),
    ],
)
def test_an_expression_is_one_value(expression: str, expected: str) -> None:
    with pytest.raises(InvalidSql) as caught:
        check_expression(expression)
    assert expected in str(caught.value)
    for taken in (
        "COUNT(*)",
        "COUNT(DISTINCT a)",
        "SUM(CASE WHEN day = ${op_time} THEN 1 END)",
        "(SELECT MAX(x) FROM y)",
    ):
        check_expression(taken)


def test_only_dependencies_are_renamed_and_only_where_they_are_tables() -> None:
    sql = (
        "WITH own_yyyymm AS (SELECT 1) SELECT '订单_yyyymmdd', 订单_yyyymmdd.a, ${kpis} FROM 订单_yyyymmdd"
        " JOIN dw.shops_yyyymm s JOIN `other_yyyymmdd` JOIN own_yyyymm JOIN db.订单_yyyymmdd AS z"
    )
    tables = ["订单_yyyymmdd", "dw.shops_yyyymm", "own_yyyymm"]
    query = render_query(model(sql, depends_on=tables, kpis=[Kpi("K`", "", "1")]), "mysql", "20`51219")
    assert query.sql == (
        "WITH own_yyyymm AS (SELECT 1) SELECT '订单_yyyymmdd', 订单_yyyymmdd.a, 1 AS `K```"
        " FROM `订单_20``51219` AS `订单_yyyymmdd` JOIN `dw`.`shops_20``512` s JOIN `other_yyyymmdd`"
        " JOIN own_yyyymm JOIN db.`订单_20``51219` AS z"
    )


# Ways to write a hidden table, another schema or a statement that is no query, so that a check by names might miss it.
HOSTILE = r"""
SELECT COUNT(*) AS K FROM /*!50000 api_keys */
SELECT COUNT(*) AS K FROM /*!api_keys*/
SELECT COUNT(*) AS K FROM /*M! api_keys */
SELECT COUNT(*) AS K FROM `API_KEYS`
SELECT COUNT(*) AS K FROM`api_keys`
SELECT COUNT(*) AS K FROM(api_keys)
SELECT COUNT(*) AS K FROM .api_keys
SELECT COUNT(*) AS K FROM (orders, api_keys)
SELECT COUNT(*) AS K FROM {oj orders LEFT JOIN api_keys ON 1=1}
SELECT COUNT(*) AS K FROM orders STRAIGHT_JOIN api_keys
SELECT COUNT(*) AS K FROM orders PARTITION (p0), api_keys PARTITION (p0)
WITH orders AS (SELECT * FROM api_keys) SELECT COUNT(*) AS K FROM orders
WITH api_keys AS (SELECT 1) SELECT COUNT(*) AS K FROM api_keys
WITH x AS (WITH api_keys AS (SELECT 1 AS a) SELECT * FROM api_keys) SELECT (SELECT COUNT(*) FROM api_keys) AS K FROM x
SELECT (TABLE api_keys LIMIT 1) AS K
SELECT 1 AS K UNION TABLE api_keys
SELECT 1 AS K FROM (TABLE api_keys) x
SELECT 1 AS K WHERE 1 IN (TABLE api_keys)
TABLE api_keys
HANDLER api_keys OPEN
SHOW TABLES
SELECT 1 AS K; SHOW TABLES
DESCRIBE api_keys
PREPARE x FROM 'SELECT 1'
EXECUTE x
CALL something()
SELECT COUNT(*) AS K FROM `information_schema`.`tables`
SELECT COUNT(*) AS K FROM performance_schema.threads
SELECT COUNT(*) AS K FROM other . orders
SELECT COUNT(*) AS K FROM def.other.orders
SELECT COUNT(*) AS K FROM JSON_TABLE((SELECT JSON_ARRAYAGG(s) FROM api_keys), '$[*]' COLUMNS (a INT PATH '$')) t
SELECT COUNT(*) AS K FROM orders, LATERAL (SELECT * FROM api_keys) x
SELECT @x := (SELECT COUNT(*) FROM api_keys) AS K
SELECT LOAD_FILE/**/('/etc/passwd') AS K
SELECT `LOAD_FILE`('/etc/passwd') AS K
SELECT 1 AS K INTO OUTFILE '/tmp/x'
SELECT 1 AS K INTO @x
SELECT COUNT(*) AS K FROM orders PROCEDURE ANALYSE()
SELECT BENCHMARK(1, (SELECT COUNT(*) FROM api_keys)) AS K
SELECT COUNT(*) AS K FROM orders ORDER BY (SELECT 1 FROM api_keys)
SELECT 1 AS K FROM orders WINDOW w AS (PARTITION BY (SELECT 1 FROM api_keys))
SELECT /*+ MAX_EXECUTION_TIME(0) */ COUNT(*) AS K FROM orders
SELECT /*+ set_var(max_execution_time = 0) */ COUNT(*) AS K FROM orders
SET STATEMENT max_statement_time = 0 FOR SELECT 1 AS K
SELECT 'a\' FROM orders -- ' AS K, COUNT(*) FROM api_keys
""".strip().splitlines()


@pytest.mark.parametrize("sql", HOSTILE)
def test_on_the_platforms_mysql_no_spelling_of_a_query_reaches_what_is_hidden(sql: str) -> None:
    hostile = model(sql, dimensions=[], kpis=[Kpi("K", "", "1")])
    with pytest.raises(ModelFailed, match="the SQL of the model"):
        render_query(hostile, "mysql", "20251219", Reach("platform"))

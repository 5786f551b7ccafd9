"""What the demo shows: the names of its models, chains, tables and sources, and how they are described."""

from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from platform_defs.demo.shop import RIGHT_AMOUNT, WRONG_ORDER

# the named data source of the shop's database: PLATFORM_SOURCE_DEMO_SHOP_URL
SOURCE = "demo_shop"
ORDERS, STORES, RETURNS = "demo_orders", "demo_stores", "demo_returns"
TABLES = (ORDERS, STORES, RETURNS)
SALES, RETURNED = "demo_daily_sales", "demo_daily_returns"
MODELS = {SALES: (ORDERS, STORES), RETURNED: (ORDERS, RETURNS)}
SUBSCRIBED_KPI = "demo_revenue"
CLOSE, CORRECT = "demo_nightly_close", "demo_correct_order"
CHAINS = (CLOSE, CORRECT)
FAILED_NODE = "close_day"
# how long after it was written the model's missing table is late; `due` counts in minutes
LATE_AFTER = timedelta(minutes=1)

_MODELS = """\
# The models of the demo. `platform models load` of this file, after a change, makes a new version of them.
models:
  - model_id: {sales}
    name: Daily sales by region
    depends_on: [{orders}, {stores}]
    source: {source}
    dimensions: [region]
    sql: >-
      SELECT ${{dimGroup}}, ${{kpis}} FROM demo_orders JOIN demo_stores USING (store_id)
      WHERE day = ${{op_time}} GROUP BY ${{dimGroup}}
    kpis:
      - {{kpi_id: demo_revenue, name: Revenue, expression: SUM(amount)}}
      - {{kpi_id: demo_order_count, name: Orders, expression: COUNT(*)}}
    period: day
  - model_id: {returned}
    name: Daily returns by reason
    depends_on: [{orders}, {returns}]
    source: {source}
    dimensions: [reason]
    sql: SELECT ${{dimGroup}}, ${{kpis}} FROM demo_returns WHERE day = ${{op_time}} GROUP BY ${{dimGroup}}
    kpis:
      - {{kpi_id: demo_return_count, name: Returns, expression: COUNT(*)}}
      - {{kpi_id: demo_refunds, name: Refunds, expression: SUM(refund)}}
    period: day
    due: "{due}"
computed_kpis:
  - {{kpi_id: demo_average_order, name: Average order, expression: demo_revenue / demo_order_count}}
"""


def models_file(last: str, now: datetime, zone: ZoneInfo) -> str:
    """The models as a file. The table that never arrives for the `last` batch is due a minute or two from now.

    A model is not told of tables that were due before it was published, so that the time cannot be in the past.
    """
    at = (now + LATE_AFTER + timedelta(seconds=59)).astimezone(zone)
    days = (at.date() - datetime.strptime(last, "%Y%m%d").replace(tzinfo=zone).date()).days
    return _MODELS.format(
        sales=SALES,
        returned=RETURNED,
        orders=ORDERS,
        stores=STORES,
        returns=RETURNS,
        source=SOURCE,
        due=f"+{days} {at:%H:%M}",
    )


def chain_documents(wrong: str) -> dict[str, dict[str, Any]]:
    """The bodies of `POST /api/v1/chains`, by name."""
    day = f"${{coalesce(params.day, '{wrong}')}}"
    in_shop = {"source": SOURCE, "parameters": {"day": day}}
    nodes = [
        _node("wait_for_orders", "wait_for_arrival", [], {"table": ORDERS, "opTime": day}),
        _node(
            "count_orders",
            "sql",
            ["wait_for_orders"],
            {**in_shop, "sql": "SELECT COUNT(*) AS orders FROM demo_orders WHERE day = :day"},
        ),
        _node(
            "tell_stores",
            "print",
            ["count_orders"],
            {"message": f"{day}: ${{nodes.count_orders.artifact.rows[0].orders}} orders"},
        ),
        _node(
            FAILED_NODE,
            "sql",
            ["count_orders"],
            {
                **in_shop,
                "sql": "INSERT OR REPLACE INTO demo_daily_close SELECT day, store_id, COUNT(*), SUM(amount)"
                " FROM demo_orders WHERE day = :day GROUP BY day, store_id",
            },
        ),
        _node(
            "best_store",
            "sql",
            [FAILED_NODE],
            {
                **in_shop,
                "sql": "SELECT city, revenue FROM demo_daily_close JOIN demo_stores USING (store_id) WHERE day = :day"
                " ORDER BY revenue DESC LIMIT 1",
            },
        ),
        _node(
            "tell_finance",
            "print",
            ["tell_stores", "best_store"],
            {"message": f"{day} is closed; best store: ${{nodes.best_store.artifact.rows[0].city}}"},
        ),
    ]
    correction = {
        "source": SOURCE,
        "sql": "UPDATE demo_orders SET amount = :amount WHERE order_id = :order",
        "parameters": {"order": WRONG_ORDER, "amount": RIGHT_AMOUNT},
    }
    return {
        CLOSE: {
            "name": CLOSE,
            # A description stays as it is when the order has been corrected, and must be true then too.
            "description": f"Demo: closes a day of the shop. Its node {FAILED_NODE} fails while order {WRONG_ORDER} has"
            f" a wrong amount: run {CORRECT}, then retry the node.",
            "dagJson": {"nodes": nodes},
        },
        CORRECT: {
            "name": CORRECT,
            "description": f"Demo: gives order {WRONG_ORDER} its right amount. After it a batch of {SALES} that failed"
            f" for this order can be materialised again, and the node {FAILED_NODE} of {CLOSE} be retried.",
            "dagJson": {"nodes": [_node("correct_the_amount", "sql", [], correction)]},
        },
    }


def _node(id: str, type: str, depends_on: list[str], cfg: dict[str, Any]) -> dict[str, Any]:
    return {"id": id, "type": type, "dependsOn": depends_on, "cfg": cfg}

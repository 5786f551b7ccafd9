"""All Cypher of the platform, as templates: a test walks them and proves that every pattern carries the tenant.

{label} is `Knowledge` for assets, which have one index over (tenantId, id) whatever their kind, and `Tenant` for the
tenant's own node. The kind of a node that is written is a value of its row (a dynamic label, of Neo4j 5.26), so that
one statement writes all kinds. The types of edges are filled into the text: with dynamic types Neo4j 5.26 needs forty
times as long. Both come from the checked vocabulary only.
"""

from platform_defs.graph.vocabulary import ASSET_LABELS

UPSERT_NODES = """
UNWIND $rows AS row
MERGE (n:{label} {{tenantId: $tenant, id: row.id}})
ON CREATE SET n.createdAt = datetime()
SET n:$(row.kind), n += row.props, n.updatedAt = datetime()
REMOVE n:$([label IN labels(n) WHERE label IN $kinds AND label <> row.kind])
"""

PATCH_NODES = """
UNWIND $rows AS row
MATCH (n:{label} {{tenantId: $tenant, id: row.id}})
SET n += row.props, n.updatedAt = datetime()
RETURN collect({{id: n.id}}) AS found
"""

STALE_VECTOR_LABELS = """
UNWIND $ids AS id
MATCH (n:Knowledge {{tenantId: $tenant, id: id}})
UNWIND labels(n) AS label
WITH n, label WHERE label STARTS WITH 'Knowledge_' AND label <> $keep
RETURN label, collect(n.id) AS ids
"""

REMOVE_LABEL = """
UNWIND $ids AS id
MATCH (n:Knowledge {{tenantId: $tenant, id: id}})
REMOVE n:{vector}
"""

ADD_LABEL = """
UNWIND $ids AS id
MATCH (n:Knowledge {{tenantId: $tenant, id: id}})
SET n:{vector}
"""

UPSERT_EDGES = """
UNWIND $rows AS row
MATCH (a:{from_label} {{tenantId: $tenant, id: row.from}})
MATCH (b:{to_label} {{tenantId: $tenant, id: row.to}})
MERGE (a)-[r:{type}]->(b)
SET r += row.props
RETURN collect({{at: row.at}}) AS found
"""

DELETE_NODES = """
UNWIND $ids AS id
MATCH (n:{label} {{tenantId: $tenant, id: id}})
DETACH DELETE n
"""

DELETE_EDGES = """
UNWIND $rows AS row
MATCH (a:{from_label} {{tenantId: $tenant, id: row.from}})-[r:{type}]->(b:{to_label} {{tenantId: $tenant, id: row.to}})
DELETE r
"""

CLEAR = """
MATCH (n:{label} {{tenantId: $tenant}})
WITH n LIMIT $limit
DETACH DELETE n
RETURN count(*) AS deleted
"""

NODES = """
UNWIND $ids AS id
MATCH (n:{label} {{tenantId: $tenant, id: id}})
RETURN collect({{id: n.id, labels: labels(n), props: n {{.*, createdAt: null, updatedAt: null}}}}) AS found
"""

UPSTREAM_BY_JOB = """
UNWIND $ids AS id
MATCH (u:Knowledge {{tenantId: $tenant}})-[:INPUT_OF]->(:Knowledge {{tenantId: $tenant}})
  -[:OUTPUT_TO]->(t:Knowledge {{tenantId: $tenant, id: id}})
WITH DISTINCT t.id AS table, u.id AS upstream ORDER BY table, upstream LIMIT $limit
RETURN collect({{table: table, upstream: upstream}}) AS found
"""

# two patterns, because one would not use the same edge twice, and a column may derive from itself
UPSTREAM_BY_COLUMN = """
UNWIND $ids AS id
MATCH (t:Knowledge {{tenantId: $tenant, id: id}})-[:HAS_COLUMN]->(:Knowledge {{tenantId: $tenant}})
  -[:DERIVES_FROM]->(c:Knowledge {{tenantId: $tenant}})
MATCH (u:Knowledge {{tenantId: $tenant}})-[:HAS_COLUMN]->(c:Knowledge {{tenantId: $tenant}})
WITH DISTINCT t.id AS table, u.id AS upstream ORDER BY table, upstream LIMIT $limit
RETURN collect({{table: table, upstream: upstream}}) AS found
"""

# an input of the table as a whole is an edge from the table itself
UPSTREAM_AS_A_WHOLE = """
UNWIND $ids AS id
MATCH (t:Knowledge {{tenantId: $tenant, id: id}})
  -[:DERIVES_FROM]->(:Knowledge {{tenantId: $tenant}})<-[:HAS_COLUMN]-(u:Knowledge {{tenantId: $tenant}})
WITH DISTINCT t.id AS table, u.id AS upstream ORDER BY table, upstream LIMIT $limit
RETURN collect({{table: table, upstream: upstream}}) AS found
"""

EDGES_OUT = """
UNWIND $ids AS id
MATCH (a:{label} {{tenantId: $tenant, id: id}})-[r]->(b {{tenantId: $tenant}})
WHERE $types IS NULL OR type(r) IN $types
RETURN collect({{type: type(r), from: a.id, to: b.id, props: properties(r)}}) AS found
"""

EDGES_IN = """
UNWIND $ids AS id
MATCH (a {{tenantId: $tenant}})-[r]->(b:{label} {{tenantId: $tenant, id: id}})
WHERE $types IS NULL OR type(r) IN $types
RETURN collect({{type: type(r), from: a.id, to: b.id, props: properties(r)}}) AS found
"""

EDGES_BY_KEY = """
UNWIND $rows AS row
MATCH (a:{from_label} {{tenantId: $tenant, id: row.from}})-[r:{types}]->(b:{to_label} {{tenantId: $tenant, id: row.to}})
WHERE type(r) IN row.types
RETURN collect({{type: type(r), from: a.id, to: b.id, props: properties(r)}}) AS found
"""

FOLLOW_OUT = """
UNWIND $ids AS id
MATCH (a:{label} {{tenantId: $tenant, id: id}})-[r:{types}]->(b {{tenantId: $tenant}})
WITH a, r, b ORDER BY a.id, type(r), b.id LIMIT $limit
RETURN collect({{type: type(r), from: a.id, to: b.id, props: properties(r)}}) AS found
"""

FOLLOW_IN = """
UNWIND $ids AS id
MATCH (a {{tenantId: $tenant}})-[r:{types}]->(b:{label} {{tenantId: $tenant, id: id}})
WITH a, r, b ORDER BY a.id, type(r), b.id LIMIT $limit
RETURN collect({{type: type(r), from: a.id, to: b.id, props: properties(r)}}) AS found
"""

# that the name exists is said so that the index over tenant and name is used
NODES_ENDING_WITH = """
MATCH (n:{kind} {{tenantId: $tenant}})
WHERE n.qualifiedName IS NOT NULL
  AND any(ending IN $endings WHERE toLower(n.qualifiedName) = ending
    OR toLower(n.qualifiedName) ENDS WITH '.' + ending OR toLower(n.qualifiedName) ENDS WITH '/' + ending)
WITH n ORDER BY n.qualifiedName, n.namespace, n.id LIMIT $limit
RETURN collect({{id: n.id, labels: labels(n), props: n {{.*, createdAt: null, updatedAt: null}}}}) AS found
"""

NODES_CONTAINING = """
MATCH (n:{kind} {{tenantId: $tenant}})
WHERE n.qualifiedName IS NOT NULL
  AND (n.qualifiedName CONTAINS $text OR toLower(n.qualifiedName) CONTAINS toLower($text))
  AND ($own = '' OR n.name CONTAINS $own OR toLower(n.name) CONTAINS toLower($own))
WITH n ORDER BY n.qualifiedName, n.namespace, n.id LIMIT $limit
RETURN collect({{id: n.id, labels: labels(n), props: n {{.*, createdAt: null, updatedAt: null}}}}) AS found
"""

# writing a property takes the lock of the node until the end of the transaction
LOCK_TENANT = """
MERGE (n:{label} {{tenantId: $tenant, id: $tenant}})
ON CREATE SET n.createdAt = datetime()
SET n.updatedAt = datetime()
RETURN collect({{id: n.id, labels: labels(n), props: n {{.*, createdAt: null, updatedAt: null}}}}) AS found
"""

IDS_AFTER = """
MATCH (n:Knowledge {{tenantId: $tenant}})
WHERE n.id > $after
RETURN n.id AS id ORDER BY n.id LIMIT $limit
"""

CONSTRAINTS = {
    "tenant_id_uk": "FOR (t:Tenant) REQUIRE t.id IS UNIQUE",
    "tenant_code_uk": "FOR (t:Tenant) REQUIRE t.code IS UNIQUE",
    # beyond the seed: ids are unique over all kinds, so that a node is found by its id alone
    "knowledge_tenant_id_uk": "FOR (n:Knowledge) REQUIRE (n.tenantId, n.id) IS UNIQUE",
}
_CONSTRAINT_NAMES = {
    "AtomicMetric": "atomic_metric",
    "DerivedMetric": "derived_metric",
    "CompositeMetric": "composite_metric",
}
CONSTRAINTS |= {
    f"{_CONSTRAINT_NAMES.get(kind, kind.lower())}_tenant_id_uk": (
        f"FOR (n:{kind}) REQUIRE (n.tenantId, n.id) IS UNIQUE"
    )
    for kind in sorted(ASSET_LABELS)
}

FULLTEXT_INDEXES = {
    "knowledge_fulltext": (
        "FOR (n:Knowledge) ON EACH [n.name, n.description, n.summary, n.content, n.tags, n.code, n.items]"
    ),
    "sql_fulltext": "FOR (n:SQL) ON EACH [n.content, n.summary, n.tags]",
}

# people look for a table by the name that they write in SQL
RANGE_INDEXES = {
    f"{kind.lower()}_{name}": f"FOR (n:{kind}) ON (n.tenantId, n.{key})"
    for kind in ("Table", "Column")
    for name, key in (("qualified_name", "qualifiedName"), ("namespace", "namespace"))
}

SCHEMA = {name: f"CREATE CONSTRAINT {name} IF NOT EXISTS {rule}" for name, rule in CONSTRAINTS.items()} | {
    name: f"CREATE FULLTEXT INDEX {name} IF NOT EXISTS {rule}" for name, rule in FULLTEXT_INDEXES.items()
}
SCHEMA |= {name: f"CREATE INDEX {name} IF NOT EXISTS {rule}" for name, rule in RANGE_INDEXES.items()}

SHOW_INDEX_NAMES = "SHOW INDEXES YIELD name RETURN name"
AWAIT_INDEXES = "CALL db.awaitIndexes($seconds)"
CREATE_VECTOR_INDEX = """
CREATE VECTOR INDEX {name} IF NOT EXISTS FOR (n:{vector}) ON (n.embedding)
OPTIONS {{indexConfig: {{`vector.dimensions`: {dimension}, `vector.similarity_function`: '{similarity}'}}}}
"""

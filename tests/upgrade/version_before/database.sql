BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0003');
CREATE TABLE api_keys (
	id INTEGER NOT NULL, 
	public_id CHAR(16) NOT NULL, 
	key_hash CHAR(64) NOT NULL, 
	name VARCHAR(128) NOT NULL, 
	scopes JSON NOT NULL, 
	source_type VARCHAR(32), 
	tenant_id BIGINT, 
	revoked_at DATETIME, 
	created_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	CONSTRAINT pk_api_keys PRIMARY KEY (id), 
	CONSTRAINT uk_api_keys_public_id UNIQUE (public_id)
);
INSERT INTO "api_keys" VALUES(1,'8f334eacd1474eed','7a41afedfa8d278a38e5e6b829500da376626e36b1ba9f3c133bf42f1eaa3582','demo','["arrivals:write","chain:read","chain:write","lineage:write","run:control","run:read","run:write","webhooks:write"]','compute',1,NULL,'2026-11-17 10:29:55.487000');
INSERT INTO "api_keys" VALUES(2,'7196248c4fdfab63','7e71a40f6e9d7d26eba7a2d32b6ed426aed0414185c6fe0731a10998c3603c7a','gravitino','["lineage:write"]','gravitino',7,NULL,'2026-11-17 10:30:06.211000');
INSERT INTO "api_keys" VALUES(3,'8b2652c539a4dc47','2dbf6e029cb099654974dffc7351a761c84bc2ee1dfd6c7977e3e13aa3c6785c','revoked','["lineage:write"]',NULL,NULL,'2026-11-17 10:30:07.559500','2026-11-17 10:30:06.941000');
CREATE TABLE graph_edge (
	tenant_id BIGINT NOT NULL, 
	from_node INTEGER NOT NULL, 
	type VARCHAR(32) NOT NULL, 
	to_node INTEGER NOT NULL, 
	props TEXT NOT NULL, 
	CONSTRAINT pk_graph_edge PRIMARY KEY (tenant_id, from_node, type, to_node), 
	CONSTRAINT fk_graph_edge_from FOREIGN KEY(tenant_id, from_node) REFERENCES graph_node (tenant_id, id) ON DELETE CASCADE, 
	CONSTRAINT fk_graph_edge_to FOREIGN KEY(tenant_id, to_node) REFERENCES graph_node (tenant_id, id) ON DELETE CASCADE
);
INSERT INTO "graph_edge" VALUES(7,1,'OWNS_CATALOG',2,'{}');
INSERT INTO "graph_edge" VALUES(7,2,'HAS_SCHEMA',3,'{}');
INSERT INTO "graph_edge" VALUES(7,3,'HAS_TABLE',8,'{}');
INSERT INTO "graph_edge" VALUES(7,8,'HAS_COLUMN',5,'{}');
INSERT INTO "graph_edge" VALUES(7,8,'HAS_COLUMN',6,'{}');
INSERT INTO "graph_edge" VALUES(7,8,'HAS_COLUMN',7,'{}');
INSERT INTO "graph_edge" VALUES(7,1,'OWNS_TAG',14,'{}');
INSERT INTO "graph_edge" VALUES(7,1,'OWNS_VALUEDOMAIN',15,'{}');
INSERT INTO "graph_edge" VALUES(7,1,'OWNS_UNIT',16,'{}');
INSERT INTO "graph_edge" VALUES(7,1,'OWNS_METRIC',17,'{}');
INSERT INTO "graph_edge" VALUES(7,3,'HAS_METRIC',17,'{"_facts":"{\"at\":\"40064bf3a5240000be8230dd62bcaf3400003\",\"first\":\"40064bf3a5240000be8230dd62bcaf3400003\"}"}');
INSERT INTO "graph_edge" VALUES(7,17,'MEASURES',5,'{"_facts":"{\"at\":\"40064bf3a5240000be8230dd62bcaf3400004\"}"}');
INSERT INTO "graph_edge" VALUES(7,7,'HAS_TAG',14,'{"_facts":"{\"at\":\"40064bf3a8b78700a84bd4459f096e3300000\"}"}');
INSERT INTO "graph_edge" VALUES(7,7,'HAS_VALUE_DOMAIN',15,'{"_facts":"{\"at\":\"40064bf3a8b78700a84bd4459f096e3300001\"}"}');
INSERT INTO "graph_edge" VALUES(7,8,'GONE_HAS_COLUMN',4,'{}');
INSERT INTO "graph_edge" VALUES(7,8,'HAS_COLUMN',18,'{}');
INSERT INTO "graph_edge" VALUES(7,8,'HAS_COLUMN',19,'{}');
INSERT INTO "graph_edge" VALUES(7,17,'FILTERS_BY',19,'{"_facts":"{\"at\":\"40064bf3a5240000be8230dd62bcaf3400005\"}"}');
INSERT INTO "graph_edge" VALUES(7,3,'GONE_HAS_TABLE',11,'{}');
INSERT INTO "graph_edge" VALUES(7,3,'HAS_TABLE',22,'{}');
INSERT INTO "graph_edge" VALUES(7,22,'HAS_COLUMN',20,'{}');
INSERT INTO "graph_edge" VALUES(7,22,'HAS_COLUMN',21,'{}');
INSERT INTO "graph_edge" VALUES(7,3,'GONE_HAS_TABLE',13,'{}');
INSERT INTO "graph_edge" VALUES(7,22,'HAS_COLUMN',23,'{}');
INSERT INTO "graph_edge" VALUES(1,24,'OWNS_CATALOG',25,'{}');
INSERT INTO "graph_edge" VALUES(1,24,'OWNS_SQL',31,'{}');
INSERT INTO "graph_edge" VALUES(1,25,'HAS_SCHEMA',30,'{}');
INSERT INTO "graph_edge" VALUES(1,30,'HAS_TABLE',32,'{}');
INSERT INTO "graph_edge" VALUES(1,30,'HAS_TABLE',33,'{}');
INSERT INTO "graph_edge" VALUES(1,32,'HAS_COLUMN',27,'{}');
INSERT INTO "graph_edge" VALUES(1,32,'HAS_COLUMN',28,'{}');
INSERT INTO "graph_edge" VALUES(1,33,'HAS_COLUMN',26,'{}');
INSERT INTO "graph_edge" VALUES(1,33,'HAS_COLUMN',29,'{}');
INSERT INTO "graph_edge" VALUES(1,26,'DERIVES_FROM',27,'{"_facts":"{\"at\":\"40064bf3d3a1db00ed691b7b9e8bd9310000c\"}","transformationSubtype":"AGGREGATION","transformationType":"DIRECT"}');
INSERT INTO "graph_edge" VALUES(1,29,'DERIVES_FROM',28,'{"_facts":"{\"at\":\"40064bf3d3a1db00ed691b7b9e8bd9310000a\"}","transformationSubtype":"IDENTITY","transformationType":"DIRECT"}');
INSERT INTO "graph_edge" VALUES(1,31,'OUTPUT_TO',33,'{"_facts":"{\"at\":\"40064bf3d3a1db00ed691b7b9e8bd93100008\"}"}');
INSERT INTO "graph_edge" VALUES(1,32,'INPUT_OF',31,'{"_facts":"{\"at\":\"40064bf3d3a1db00ed691b7b9e8bd93100007\"}"}');
INSERT INTO "graph_edge" VALUES(1,24,'OWNS_SQL',36,'{}');
INSERT INTO "graph_edge" VALUES(1,30,'HAS_TABLE',37,'{}');
INSERT INTO "graph_edge" VALUES(1,37,'HAS_COLUMN',34,'{}');
INSERT INTO "graph_edge" VALUES(1,37,'HAS_COLUMN',35,'{}');
INSERT INTO "graph_edge" VALUES(1,33,'INPUT_OF',36,'{"_facts":"{\"at\":\"40064bf3d7356200c2ab7f2d8bba7d0b00007\"}"}');
INSERT INTO "graph_edge" VALUES(1,34,'DERIVES_FROM',29,'{"_facts":"{\"at\":\"40064bf3d7356200c2ab7f2d8bba7d0b0000a\"}","transformationSubtype":"IDENTITY","transformationType":"DIRECT"}');
INSERT INTO "graph_edge" VALUES(1,35,'DERIVES_FROM',26,'{"_facts":"{\"at\":\"40064bf3d7356200c2ab7f2d8bba7d0b0000c\"}","transformationSubtype":"IDENTITY","transformationType":"DIRECT"}');
INSERT INTO "graph_edge" VALUES(1,36,'OUTPUT_TO',37,'{"_facts":"{\"at\":\"40064bf3d7356200c2ab7f2d8bba7d0b00008\"}"}');
INSERT INTO "graph_edge" VALUES(1,24,'OWNS_SQL',38,'{}');
INSERT INTO "graph_edge" VALUES(1,33,'INPUT_OF',38,'{"_facts":"{\"at\":\"40064bf3dac8e900c48a16c39d77743d00004\"}"}');
INSERT INTO "graph_edge" VALUES(1,37,'HAS_COLUMN',39,'{}');
CREATE TABLE graph_node (
	id INTEGER NOT NULL, 
	tenant_id BIGINT NOT NULL, 
	node_id VARCHAR(512) NOT NULL, 
	kind VARCHAR(32) NOT NULL, 
	vector_label VARCHAR(64), 
	tenant_code VARCHAR(64), 
	props TEXT NOT NULL, 
	created_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	updated_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	CONSTRAINT pk_graph_node PRIMARY KEY (id), 
	CONSTRAINT uk_graph_node_tenant_code UNIQUE (tenant_code), 
	CONSTRAINT uk_graph_node_tenant_number UNIQUE (tenant_id, id), 
	CONSTRAINT uk_graph_node_tenant_node UNIQUE (tenant_id, node_id)
);
INSERT INTO "graph_node" VALUES(1,7,'7','Tenant',NULL,'acme','{"code":"acme","name":"Acme"}','2026-11-17 10:30:12.750000','2026-11-17 10:30:12.753928');
INSERT INTO "graph_node" VALUES(2,7,'catalog:cd79ef1ddb64571f8c264031af9e19b709d827b7','Catalog',NULL,NULL,'{"_facts":"{\"entries\":\"40064bf38887c80020d04a3dc8ff3b7100000\",\"exists\":\"40064bf3b3721c00c6157e9eda7a597100003\",\"name\":[\"lake\",\"hive\"],\"props\":{\"40064bf38887c80020d04a3dc8ff3b7100000\":[\"catalogType\",\"properties.uri\",\"provider\"],\"40064bf3b3721c00c6157e9eda7a597100001\":[\"metalake\"]}}","catalogType":"RELATIONAL","metalake":"lake","name":"hive","properties":"{\"uri\":\"thrift://h\"}","provider":"hive"}','2026-11-17 10:30:12.752000','2026-11-17 10:30:13.504000');
INSERT INTO "graph_node" VALUES(3,7,'schema:6b4647b6d4ce064cb256dcd5e31feba5ac4c39dc','Schema',NULL,NULL,'{"_facts":"{\"exists\":\"40064bf3b3721c00c6157e9eda7a597100003\",\"name\":[\"lake\",\"hive\",\"sales\"],\"props\":{\"40064bf38c1b4f000a78ad4aa6c7f72000001\":[\"description\"]}}","description":"all sales","name":"sales"}','2026-11-17 10:30:12.839000','2026-11-17 10:30:13.504000');
INSERT INTO "graph_node" VALUES(4,7,'column:68464305c47d22d886623d8dec94f1eaa6ca1da8','Tombstone',NULL,NULL,'{"_facts":"{\"floor\":\"40064bf3ac4b0e002f0fe788ef0ebe7a00000\",\"name\":[\"lake\",\"hive\",\"sales\",\"orders\",\"state\"],\"renames\":{\"40064bf3ac4b0e002f0fe788ef0ebe7a00000\":[\"lake\",\"hive\",\"sales\",\"orders\",\"status\"]}}"}','2026-11-17 10:30:12.894000','2026-11-17 10:30:13.432000');
INSERT INTO "graph_node" VALUES(5,7,'column:c841eae4225ccb0166539d2de1e60db478babdd4','Column',NULL,NULL,'{"_facts":"{\"exists\":\"=\",\"name\":[\"lake\",\"hive\",\"sales\",\"orders\",\"amount\"],\"props\":{\"=\":[\"dataType\"]}}","dataType":"decimal(10,2)","name":"amount"}','2026-11-17 10:30:12.894000','2026-11-17 10:30:12.894000');
INSERT INTO "graph_node" VALUES(6,7,'column:cabea543e04b368bdc9b84aaf0fd0d03e3ac405c','Column',NULL,NULL,'{"_facts":"{\"exists\":\"=\",\"name\":[\"lake\",\"hive\",\"sales\",\"orders\",\"id\"],\"props\":{\"=\":[\"dataType\"]}}","dataType":"long","name":"id"}','2026-11-17 10:30:12.894000','2026-11-17 10:30:12.894000');
INSERT INTO "graph_node" VALUES(7,7,'column:d2bdf6e1a7e9d090c7e01bacd8317bf02031f943','Column',NULL,NULL,'{"_facts":"{\"exists\":\"=\",\"name\":[\"lake\",\"hive\",\"sales\",\"orders\",\"sex\"],\"props\":{\"=\":[\"dataType\"]}}","dataType":"int","name":"sex"}','2026-11-17 10:30:12.894000','2026-11-17 10:30:12.894000');
INSERT INTO "graph_node" VALUES(8,7,'table:aa64caec577bf7547cbb3dff6f4ca4e372710177','Table',NULL,NULL,'{"_facts":"{\"columnRenamed\":\"40064bf3ac4b0e002f0fe788ef0ebe7a00000\",\"columns\":[\"40064bf38faed600a2c4c7a9a9de624400003\",null,{\"amount\":\"\",\"id\":\"\",\"sex\":\"\",\"state\":\"\"}],\"entries\":\"40064bf38faed600a2c4c7a9a9de624400002\",\"exists\":\"40064bf3ac4b0e002f0fe788ef0ebe7a00005\",\"name\":[\"lake\",\"hive\",\"sales\",\"orders\"],\"props\":{\"40064bf38faed600a2c4c7a9a9de624400002\":[\"creator\",\"description\",\"properties.format\"],\"40064bf3ac4b0e002f0fe788ef0ebe7a00003\":[\"producer\"]}}","creator":"ann","description":"all orders","name":"orders","producer":"https://gravitino.apache.org/listener","properties":"{\"format\":\"orc\"}"}','2026-11-17 10:30:12.894000','2026-11-17 10:30:13.433000');
INSERT INTO "graph_node" VALUES(11,7,'table:b2f16ba46dd275f221a143127651dfba25d9a06d','Tombstone',NULL,NULL,'{"_facts":"{\"floor\":\"40064bf3b3721c00c6157e9eda7a597100000\",\"name\":[\"lake\",\"hive\",\"sales\",\"customers\"],\"renames\":{\"40064bf3b3721c00c6157e9eda7a597100000\":[\"lake\",\"hive\",\"sales\",\"clients\"]}}"}','2026-11-17 10:30:12.955000','2026-11-17 10:30:13.504000');
INSERT INTO "graph_node" VALUES(13,7,'table:a86af9dc6b5a339d5da0bc2aecb4e9237ddc12e2','Tombstone',NULL,NULL,'{"_facts":"{\"floor\":\"40064bf3b705a300210cb570366b1f4f00000\",\"name\":[\"lake\",\"hive\",\"sales\",\"dropped\"]}"}','2026-11-17 10:30:13.013000','2026-11-17 10:30:13.614000');
INSERT INTO "graph_node" VALUES(14,7,'tag:c24eccbc3a06b8ddcee91f881a396f357c1d1f37','Tag',NULL,NULL,'{"_facts":"{\"exists\":\"40064bf39a696b00ddbcaa434764f40300000\",\"name\":[\"pii\"],\"props\":{\"40064bf39a696b00ddbcaa434764f40300000\":[\"description\"]}}","description":"personal","name":"pii"}','2026-11-17 10:30:13.078000','2026-11-17 10:30:13.078000');
INSERT INTO "graph_node" VALUES(15,7,'valuedomain:123741122425f871903f0038ef30b080862eca5d','ValueDomain',NULL,NULL,'{"_facts":"{\"exists\":\"40064bf39dfcf20005c1fd078d2ec70900000\",\"name\":[\"SEX\"],\"props\":{\"40064bf39dfcf20005c1fd078d2ec70900000\":[\"code\",\"domainType\",\"items\",\"name\"]}}","code":"SEX","domainType":"ENUM","items":"1:m,2:f","name":"sex"}','2026-11-17 10:30:13.146000','2026-11-17 10:30:13.146000');
INSERT INTO "graph_node" VALUES(16,7,'unit:f58bc08c7a6d8a6ae248ba80f835cf507df47016','Unit',NULL,NULL,'{"_facts":"{\"exists\":\"40064bf3a1907900c336141d046cebd400000\",\"name\":[\"CNY\"],\"props\":{\"40064bf3a1907900c336141d046cebd400000\":[\"code\",\"name\",\"symbol\"]}}","code":"CNY","name":"Yuan","symbol":"¥"}','2026-11-17 10:30:13.242000','2026-11-17 10:30:13.242000');
INSERT INTO "graph_node" VALUES(17,7,'metric:0dd9680d2dc2dcba8698ca0d9f359fc98bbd104b','AtomicMetric',NULL,NULL,'{"_facts":"{\"exists\":\"40064bf3a5240000be8230dd62bcaf3400000\",\"label\":\"40064bf3a5240000be8230dd62bcaf3400000\",\"name\":[\"gmv\"],\"props\":{\"40064bf3a5240000be8230dd62bcaf3400000\":[\"calculationFormula\",\"code\",\"description\",\"name\",\"unit\"]},\"sets\":{\"FILTERS_BY\":\"40064bf3a5240000be8230dd62bcaf3400005\",\"MEASURES\":\"40064bf3a5240000be8230dd62bcaf3400004\"}}","calculationFormula":"SUM(amount)","code":"gmv","description":"gross","name":"GMV","unit":"CNY"}','2026-11-17 10:30:13.312000','2026-11-17 10:30:13.312000');
INSERT INTO "graph_node" VALUES(18,7,'column:3095c15aadc1ee0d95a40c8d3eedabf9eccade6a','Column',NULL,NULL,'{"_facts":"{\"exists\":\"40064bf3ac4b0e002f0fe788ef0ebe7a00004\",\"name\":[\"lake\",\"hive\",\"sales\",\"orders\",\"day\"],\"props\":{\"40064bf3ac4b0e002f0fe788ef0ebe7a00004\":[\"dataType\"]}}","dataType":"date","name":"day"}','2026-11-17 10:30:13.431000','2026-11-17 10:30:13.431000');
INSERT INTO "graph_node" VALUES(19,7,'column:710c6033c4ef4e86bfd22a7591936bab4ac3e490','Column',NULL,NULL,'{"_facts":"{\"arrivals\":[[\"40064bf3ac4b0e002f0fe788ef0ebe7a00000\",\"40064bf38faed600a2c4c7a9a9de624400003\",false,false]],\"exists\":\"40064bf3ac4b0e002f0fe788ef0ebe7a00005\",\"name\":[\"lake\",\"hive\",\"sales\",\"orders\",\"status\"],\"props\":{\"=\":[\"dataType\"]}}","dataType":"string","name":"status"}','2026-11-17 10:30:13.431000','2026-11-17 10:30:13.431000');
INSERT INTO "graph_node" VALUES(20,7,'column:6d250c490e4062caa7c7e87bf47c6ee83e016f4f','Column',NULL,NULL,'{"_facts":"{\"exists\":\"=\",\"name\":[\"lake\",\"hive\",\"sales\",\"clients\",\"name\"],\"props\":{\"=\":[\"dataType\"]}}","dataType":"string","name":"name"}','2026-11-17 10:30:13.503000','2026-11-17 10:30:13.503000');
INSERT INTO "graph_node" VALUES(21,7,'column:8bb7eb24fbe8f42abffc7d405d3e3b0eac9ec3e7','Column',NULL,NULL,'{"_facts":"{\"exists\":\"=\",\"name\":[\"lake\",\"hive\",\"sales\",\"clients\",\"id\"],\"props\":{\"=\":[\"dataType\"]}}","dataType":"long","name":"id"}','2026-11-17 10:30:13.503000','2026-11-17 10:30:13.503000');
INSERT INTO "graph_node" VALUES(22,7,'table:5de2a8a63f373b60c7cb195e51134fb3eda66d60','Table',NULL,NULL,'{"_facts":"{\"arrivals\":[[\"40064bf3b3721c00c6157e9eda7a597100000\",\"\",false,false]],\"columns\":[\"40064bf3afde9500ed5b0878059dba7800003\",\"777c300956be332f6a89ee5061ed92a791414c69e67eb61453d689cf4d2a6b87\",{\"id\":\"\",\"late\":\"40064bf393425d0013a07133ca139c9f00003\",\"name\":\"\"}],\"exists\":\"40064bf3b3721c00c6157e9eda7a597100003\",\"name\":[\"lake\",\"hive\",\"sales\",\"clients\"],\"props\":{\"40064bf3b3721c00c6157e9eda7a597100003\":[\"producer\"]}}","name":"clients","producer":"https://gravitino.apache.org/listener"}','2026-11-17 10:30:13.503000','2026-11-17 10:30:13.697000');
INSERT INTO "graph_node" VALUES(23,7,'column:2c57347f7756d90fca9f0021d3e0313419caa384','Column',NULL,NULL,'{"_facts":"{\"exists\":\"=\",\"name\":[\"lake\",\"hive\",\"sales\",\"clients\",\"late\"],\"props\":{\"=\":[\"dataType\"]}}","dataType":"int","name":"late"}','2026-11-17 10:30:13.696000','2026-11-17 10:30:13.696000');
INSERT INTO "graph_node" VALUES(24,1,'1','Tenant',NULL,'demo','{"code":"demo","name":"Demo"}','2026-11-17 10:30:13.746000','2026-11-17 10:30:13.749526');
INSERT INTO "graph_node" VALUES(25,1,'catalog:7e6df5bb745d6e093e280f3fc5bc5d7b7a58a8a3','Catalog',NULL,NULL,'{"_facts":"{\"exists\":\"40064bf3de5c7000ba78d9d28e5f495a00003\",\"name\":[\"postgres://db.example:5432\",\"shop\"],\"props\":{\"40064bf3de5c7000ba78d9d28e5f495a00000\":[\"metalake\"]}}","metalake":"postgres://db.example:5432","name":"shop"}','2026-11-17 10:30:13.748000','2026-11-17 10:30:13.897000');
INSERT INTO "graph_node" VALUES(26,1,'column:64e3d0c94e3609e2ce751b4a60f41ca4f716d9ea','Column',NULL,NULL,'{"_facts":"{\"exists\":\"40064bf3d7356200c2ab7f2d8bba7d0b00004\",\"name\":[\"postgres://db.example:5432\",\"shop\",\"public\",\"daily\",\"total\"],\"props\":{\"40064bf3d7356200c2ab7f2d8bba7d0b00004\":[\"dataType\"]}}","dataType":"numeric","name":"total"}','2026-11-17 10:30:13.748000','2026-11-17 10:30:13.828000');
INSERT INTO "graph_node" VALUES(27,1,'column:76a8873ab543ab0479baedf07c0d9d79efe0792c','Column',NULL,NULL,'{"_facts":"{\"exists\":\"40064bf3d3a1db00ed691b7b9e8bd93100004\",\"name\":[\"postgres://db.example:5432\",\"shop\",\"public\",\"orders\",\"amount\"],\"props\":{\"40064bf3d3a1db00ed691b7b9e8bd93100004\":[\"dataType\"]}}","dataType":"numeric","name":"amount"}','2026-11-17 10:30:13.748000','2026-11-17 10:30:13.794000');
INSERT INTO "graph_node" VALUES(28,1,'column:b01009cf4e7fa3b7ae4530a4946b633aca6d81f8','Column',NULL,NULL,'{"_facts":"{\"exists\":\"40064bf3d3a1db00ed691b7b9e8bd93100003\",\"name\":[\"postgres://db.example:5432\",\"shop\",\"public\",\"orders\",\"id\"],\"props\":{\"40064bf3d3a1db00ed691b7b9e8bd93100003\":[\"dataType\"]}}","dataType":"int","name":"id"}','2026-11-17 10:30:13.748000','2026-11-17 10:30:13.794000');
INSERT INTO "graph_node" VALUES(29,1,'column:cbdf46810f3c26e7aaa495fad5d1fb53b44051f7','Column',NULL,NULL,'{"_facts":"{\"exists\":\"40064bf3d7356200c2ab7f2d8bba7d0b00003\",\"name\":[\"postgres://db.example:5432\",\"shop\",\"public\",\"daily\",\"id\"],\"props\":{\"40064bf3d7356200c2ab7f2d8bba7d0b00003\":[\"dataType\"]}}","dataType":"int","name":"id"}','2026-11-17 10:30:13.748000','2026-11-17 10:30:13.828000');
INSERT INTO "graph_node" VALUES(30,1,'schema:d6d8432013ea5ff0f28a96815ecc5a3f73a219e1','Schema',NULL,NULL,'{"_facts":"{\"exists\":\"40064bf3de5c7000ba78d9d28e5f495a00003\",\"name\":[\"postgres://db.example:5432\",\"shop\",\"public\"]}","name":"public"}','2026-11-17 10:30:13.748000','2026-11-17 10:30:13.897000');
INSERT INTO "graph_node" VALUES(31,1,'sql:23526f423bb910a1101b1c9ff127c98adf9acc7d','SQL',NULL,NULL,'{"_facts":"{\"exists\":\"40064bf3d3a1db00ed691b7b9e8bd93100006\",\"name\":[\"e916e4c3d7e664af879e3a4c74e4707e08436ebd4959a0f46813b14c3fdde7d5\"],\"props\":{\"40064bf3d3a1db00ed691b7b9e8bd93100006\":[\"content\",\"dialect\",\"jobName\",\"jobNamespace\"]}}","content":"insert into daily select id, sum(amount) as total from orders group by id","dialect":"postgres","executionCount":2,"jobName":"daily","jobNamespace":"prod"}','2026-11-17 10:30:13.748000','2026-11-17 10:30:13.794000');
INSERT INTO "graph_node" VALUES(32,1,'table:e5ced2b48a38df607b4d89a0987c368942941033','Table',NULL,NULL,'{"_facts":"{\"exists\":\"40064bf3d3a1db00ed691b7b9e8bd93100004\",\"name\":[\"postgres://db.example:5432\",\"shop\",\"public\",\"orders\"]}","name":"orders"}','2026-11-17 10:30:13.748000','2026-11-17 10:30:13.794000');
INSERT INTO "graph_node" VALUES(33,1,'table:f632b9f82f9b28e837037c4f00adf24ebdb3b9a0','Table',NULL,NULL,'{"_facts":"{\"exists\":\"40064bf3dac8e900c48a16c39d77743d00002\",\"name\":[\"postgres://db.example:5432\",\"shop\",\"public\",\"daily\"],\"props\":{\"40064bf3d3a1db00ed691b7b9e8bd93100005\":[\"producer\"]}}","name":"daily","producer":"https://example.org/spark"}','2026-11-17 10:30:13.748000','2026-11-17 10:30:13.861000');
INSERT INTO "graph_node" VALUES(34,1,'column:47b1fa2b68134a701d9bbae630b9d363683de4fd','Column',NULL,NULL,'{"_facts":"{\"exists\":\"=\",\"name\":[\"postgres://db.example:5432\",\"shop\",\"public\",\"report\",\"id\"],\"props\":{\"=\":[\"dataType\"]}}","dataType":"int","name":"id"}','2026-11-17 10:30:13.827000','2026-11-17 10:30:13.897000');
INSERT INTO "graph_node" VALUES(35,1,'column:9a7cd5101e9cf13f7b3750be66ca9dc095d6a425','Column',NULL,NULL,'{"_facts":"{\"exists\":\"=\",\"name\":[\"postgres://db.example:5432\",\"shop\",\"public\",\"report\",\"total\"],\"props\":{\"=\":[\"dataType\"]}}","dataType":"numeric","name":"total"}','2026-11-17 10:30:13.827000','2026-11-17 10:30:13.897000');
INSERT INTO "graph_node" VALUES(36,1,'sql:05e12b89f842ca433b010f3b954167539c1891ff','SQL',NULL,NULL,'{"_facts":"{\"exists\":\"40064bf3d7356200c2ab7f2d8bba7d0b00006\",\"name\":[\"7934eafbbbf2bf3a17723411477ecab86a066c3fe686d53eb668c4f33137fcee\"],\"props\":{\"40064bf3d7356200c2ab7f2d8bba7d0b00006\":[\"content\",\"dialect\",\"jobName\",\"jobNamespace\"]}}","content":"insert into report (id, total) select id, total from daily","dialect":"postgres","executionCount":1,"jobName":"copy","jobNamespace":"prod"}','2026-11-17 10:30:13.827000','2026-11-17 10:30:13.827000');
INSERT INTO "graph_node" VALUES(37,1,'table:fc63c4d9c69640583e2768e801ae5aa6f9ee9510','Table',NULL,NULL,'{"_facts":"{\"columns\":[\"40064bf3de5c7000ba78d9d28e5f495a00003\",\"8bd62bddd2e6202f3f8554b9971b1e4ee002420bccc23866296d1be1e6bc81f0\",{\"id\":\"\",\"note\":\"\",\"total\":\"\"}],\"exists\":\"40064bf3de5c7000ba78d9d28e5f495a00003\",\"name\":[\"postgres://db.example:5432\",\"shop\",\"public\",\"report\"],\"props\":{\"40064bf3d7356200c2ab7f2d8bba7d0b00005\":[\"producer\"],\"40064bf3de5c7000ba78d9d28e5f495a00002\":[\"description\"]}}","description":"the report","name":"report","producer":"https://example.org/spark"}','2026-11-17 10:30:13.827000','2026-11-17 10:30:13.897000');
INSERT INTO "graph_node" VALUES(38,1,'sql:edc32db3732daeb34aad78d5727fda3f4d59ed85','SQL',NULL,NULL,'{"_facts":"{\"exists\":\"40064bf3dac8e900c48a16c39d77743d00003\",\"name\":[\"8f89661767de0f42902ac626e7ae32588df32aa1cafabe7c0155cb91444077a7\"],\"props\":{\"40064bf3dac8e900c48a16c39d77743d00003\":[\"jobName\",\"jobNamespace\"]}}","executionCount":1,"jobName":"copy","jobNamespace":"prod"}','2026-11-17 10:30:13.860000','2026-11-17 10:30:13.860000');
INSERT INTO "graph_node" VALUES(39,1,'column:b5476848fbf642d8d3e2b03c2b1f3f3c49d92957','Column',NULL,NULL,'{"_facts":"{\"exists\":\"=\",\"name\":[\"postgres://db.example:5432\",\"shop\",\"public\",\"report\",\"note\"],\"props\":{\"=\":[\"dataType\"]}}","dataType":"text","name":"note"}','2026-11-17 10:30:13.896000','2026-11-17 10:30:13.896000');
CREATE TABLE graph_vector_index (
	label VARCHAR(64) NOT NULL, 
	created_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	CONSTRAINT pk_graph_vector_index PRIMARY KEY (label)
);
CREATE TABLE ing_cursor (
	id INTEGER NOT NULL, 
	provenance_code VARCHAR(64) NOT NULL, 
	operation_code VARCHAR(32) NOT NULL, 
	cursor_key VARCHAR(128) NOT NULL, 
	namespace_scope_code VARCHAR(32) NOT NULL, 
	namespace_key CHAR(64) NOT NULL, 
	cursor_type_code VARCHAR(32) NOT NULL, 
	cursor_value TEXT NOT NULL, 
	observed_max_value TEXT, 
	normalized_instant DATETIME, 
	normalized_numeric VARCHAR(39), 
	schedule_instance_id BIGINT, 
	plan_id BIGINT, 
	slice_id BIGINT, 
	task_id BIGINT, 
	last_run_id BIGINT, 
	last_batch_id BIGINT, 
	expr_hash CHAR(64), 
	version BIGINT DEFAULT '0' NOT NULL, 
	created_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	updated_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	CONSTRAINT pk_ing_cursor PRIMARY KEY (id), 
	CONSTRAINT uk_cursor_ns UNIQUE (provenance_code, operation_code, cursor_key, namespace_scope_code, namespace_key)
);
CREATE TABLE ing_cursor_event (
	id INTEGER NOT NULL, 
	provenance_code VARCHAR(64) NOT NULL, 
	operation_code VARCHAR(32) NOT NULL, 
	cursor_key VARCHAR(128) NOT NULL, 
	namespace_scope_code VARCHAR(32) NOT NULL, 
	namespace_key CHAR(64) NOT NULL, 
	cursor_type_code VARCHAR(32) NOT NULL, 
	direction_code VARCHAR(32) NOT NULL, 
	prev_value TEXT, 
	new_value TEXT NOT NULL, 
	prev_instant DATETIME, 
	new_instant DATETIME, 
	prev_numeric VARCHAR(39), 
	new_numeric VARCHAR(39), 
	observed_max_value TEXT, 
	window_from DATETIME, 
	window_to DATETIME, 
	idempotent_key CHAR(64) NOT NULL, 
	schedule_instance_id BIGINT, 
	plan_id BIGINT, 
	slice_id BIGINT, 
	task_id BIGINT, 
	run_id BIGINT, 
	batch_id BIGINT, 
	expr_hash CHAR(64), 
	record_remarks JSON, 
	created_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	updated_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	CONSTRAINT pk_ing_cursor_event PRIMARY KEY (id), 
	CONSTRAINT uk_cur_evt_idem UNIQUE (idempotent_key)
);
CREATE TABLE ing_plan (
	id INTEGER NOT NULL, 
	schedule_instance_id BIGINT NOT NULL, 
	plan_key VARCHAR(128) NOT NULL, 
	provenance_code VARCHAR(64) NOT NULL, 
	endpoint_name VARCHAR(64) NOT NULL, 
	operation_code VARCHAR(32) NOT NULL, 
	expr_proto_hash CHAR(64) NOT NULL, 
	expr_proto_snapshot JSON, 
	provenance_config_snapshot JSON, 
	provenance_config_hash CHAR(64), 
	spec_fingerprint CHAR(64), 
	slice_strategy_code VARCHAR(32) NOT NULL, 
	slice_params JSON, 
	window_from DATETIME, 
	window_to DATETIME, 
	status_code VARCHAR(32) DEFAULT 'DRAFT' NOT NULL, 
	record_remarks JSON, 
	version BIGINT DEFAULT '0' NOT NULL, 
	created_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	updated_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	CONSTRAINT pk_ing_plan PRIMARY KEY (id), 
	CONSTRAINT uk_plan_key UNIQUE (plan_key)
);
CREATE TABLE ing_plan_slice (
	id INTEGER NOT NULL, 
	plan_id BIGINT NOT NULL, 
	provenance_code VARCHAR(64) NOT NULL, 
	slice_no INTEGER NOT NULL, 
	slice_signature_hash CHAR(64) NOT NULL, 
	slice_spec JSON NOT NULL, 
	expr_hash CHAR(64) NOT NULL, 
	expr_snapshot JSON, 
	status_code VARCHAR(32) DEFAULT 'PENDING' NOT NULL, 
	created_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	updated_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	CONSTRAINT pk_ing_plan_slice PRIMARY KEY (id), 
	CONSTRAINT uk_slice_no UNIQUE (plan_id, slice_no), 
	CONSTRAINT uk_slice_sig UNIQUE (plan_id, slice_signature_hash)
);
CREATE TABLE ing_rate_gate (
	id INTEGER NOT NULL, 
	rate_key VARCHAR(255) NOT NULL, 
	provenance_code VARCHAR(64) NOT NULL, 
	endpoint_name VARCHAR(64), 
	credential_id BIGINT, 
	tokens DOUBLE NOT NULL, 
	refill_rate DOUBLE NOT NULL, 
	refilled_at DATETIME NOT NULL, 
	raised_at DATETIME, 
	cooldown_until DATETIME, 
	limit_remaining BIGINT, 
	window_reset_at DATETIME, 
	version BIGINT DEFAULT '0' NOT NULL, 
	created_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	updated_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	CONSTRAINT pk_ing_rate_gate PRIMARY KEY (id), 
	CONSTRAINT uk_rate_gate_key UNIQUE (rate_key)
);
CREATE TABLE ing_rate_quota (
	id INTEGER NOT NULL, 
	rate_key VARCHAR(255) NOT NULL, 
	window_code VARCHAR(16) NOT NULL, 
	window_from DATETIME NOT NULL, 
	quota_limit BIGINT NOT NULL, 
	reserved_count BIGINT DEFAULT '0' NOT NULL, 
	used_count BIGINT DEFAULT '0' NOT NULL, 
	created_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	updated_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	CONSTRAINT pk_ing_rate_quota PRIMARY KEY (id), 
	CONSTRAINT uk_rate_quota_window UNIQUE (rate_key, window_code, window_from)
);
CREATE TABLE ing_record (
	id INTEGER NOT NULL, 
	provenance_code VARCHAR(64) NOT NULL, 
	endpoint_name VARCHAR(64) NOT NULL, 
	provider_id VARCHAR(512) NOT NULL, 
	updated_at DATETIME NOT NULL, 
	record JSON NOT NULL, 
	expr_hash CHAR(64), 
	run_id BIGINT, 
	batch_id BIGINT, 
	refresh_checked_at DATETIME, 
	created_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	modified_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	CONSTRAINT pk_ing_record PRIMARY KEY (id), 
	CONSTRAINT uk_record_provider_id UNIQUE (provenance_code, endpoint_name, provider_id)
);
CREATE TABLE ing_record_quarantine (
	id INTEGER NOT NULL, 
	provenance_code VARCHAR(64) NOT NULL, 
	endpoint_name VARCHAR(64) NOT NULL, 
	operation_code VARCHAR(32) NOT NULL, 
	provider_id VARCHAR(512), 
	reason_code VARCHAR(64) NOT NULL, 
	field_path VARCHAR(512), 
	reason TEXT NOT NULL, 
	request_digest JSON, 
	response_fragment JSON, 
	expr_stack JSON, 
	schedule_instance_id BIGINT, 
	plan_id BIGINT, 
	slice_id BIGINT, 
	task_id BIGINT, 
	run_id BIGINT, 
	batch_id BIGINT, 
	expr_hash CHAR(64), 
	idempotent_key CHAR(64) NOT NULL, 
	status_code VARCHAR(32) DEFAULT 'OPEN' NOT NULL, 
	created_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	updated_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	CONSTRAINT pk_ing_record_quarantine PRIMARY KEY (id), 
	CONSTRAINT uk_quarantine_idem UNIQUE (idempotent_key)
);
CREATE TABLE ing_schedule_instance (
	id INTEGER NOT NULL, 
	scheduler_code VARCHAR(64) NOT NULL, 
	scheduler_job_id VARCHAR(64), 
	scheduler_log_id VARCHAR(64), 
	trigger_type_code VARCHAR(32) NOT NULL, 
	triggered_at DATETIME NOT NULL, 
	trigger_params JSON, 
	provenance_code VARCHAR(64) NOT NULL, 
	endpoint_name VARCHAR(64), 
	operation_code VARCHAR(32), 
	expr_proto_hash CHAR(64), 
	expr_proto_snapshot JSON, 
	record_remarks JSON, 
	created_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	updated_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	CONSTRAINT pk_ing_schedule_instance PRIMARY KEY (id)
);
CREATE TABLE ing_task (
	id INTEGER NOT NULL, 
	schedule_instance_id BIGINT NOT NULL, 
	plan_id BIGINT NOT NULL, 
	slice_id BIGINT NOT NULL, 
	provenance_code VARCHAR(64) NOT NULL, 
	endpoint_name VARCHAR(64) NOT NULL, 
	operation_code VARCHAR(32) NOT NULL, 
	credential_id BIGINT, 
	params JSON, 
	idempotent_key CHAR(64) NOT NULL, 
	expr_hash CHAR(64) NOT NULL, 
	priority INTEGER DEFAULT '5' NOT NULL, 
	lease_owner VARCHAR(128), 
	leased_until DATETIME, 
	lease_count INTEGER DEFAULT '0' NOT NULL, 
	last_heartbeat_at DATETIME, 
	retry_count INTEGER DEFAULT '0' NOT NULL, 
	last_error_code VARCHAR(64), 
	last_error_msg TEXT, 
	status_code VARCHAR(32) DEFAULT 'QUEUED' NOT NULL, 
	scheduled_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	started_at DATETIME, 
	finished_at DATETIME, 
	correlation_id VARCHAR(128), 
	version BIGINT DEFAULT '0' NOT NULL, 
	created_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	updated_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	CONSTRAINT pk_ing_task PRIMARY KEY (id), 
	CONSTRAINT uk_task_idem UNIQUE (idempotent_key), 
	CONSTRAINT uk_task_slice UNIQUE (slice_id)
);
CREATE TABLE ing_task_run (
	id INTEGER NOT NULL, 
	task_id BIGINT NOT NULL, 
	attempt_no INTEGER NOT NULL, 
	provenance_code VARCHAR(64) NOT NULL, 
	operation_code VARCHAR(32) NOT NULL, 
	status_code VARCHAR(32) DEFAULT 'PLANNED' NOT NULL, 
	checkpoint JSON, 
	stats JSON, 
	error TEXT, 
	window_from DATETIME, 
	window_to DATETIME, 
	started_at DATETIME, 
	finished_at DATETIME, 
	last_heartbeat DATETIME, 
	correlation_id VARCHAR(128), 
	created_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	updated_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	CONSTRAINT pk_ing_task_run PRIMARY KEY (id), 
	CONSTRAINT uk_run_attempt UNIQUE (task_id, attempt_no)
);
CREATE TABLE ing_task_run_batch (
	id INTEGER NOT NULL, 
	run_id BIGINT NOT NULL, 
	task_id BIGINT, 
	slice_id BIGINT, 
	plan_id BIGINT, 
	expr_hash CHAR(64), 
	provenance_code VARCHAR(64) NOT NULL, 
	operation_code VARCHAR(32) NOT NULL, 
	batch_no INTEGER NOT NULL, 
	page_no INTEGER, 
	page_size INTEGER, 
	before_token TEXT, 
	before_token_hash CHAR(64), 
	after_token TEXT, 
	next_url TEXT, 
	window_from DATETIME, 
	window_to DATETIME, 
	request_digest JSON, 
	response_digest JSON, 
	idempotent_key CHAR(64) NOT NULL, 
	record_count INTEGER DEFAULT '0' NOT NULL, 
	status_code VARCHAR(32) DEFAULT 'PLANNED' NOT NULL, 
	committed_at DATETIME, 
	error TEXT, 
	stats JSON, 
	created_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	updated_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	CONSTRAINT pk_ing_task_run_batch PRIMARY KEY (id), 
	CONSTRAINT uk_batch_idem UNIQUE (idempotent_key), 
	CONSTRAINT uk_run_batch_no UNIQUE (run_id, batch_no), 
	CONSTRAINT uk_run_before_tok UNIQUE (run_id, before_token_hash)
);
CREATE TABLE job_chain_definition (
	chain_id VARCHAR(64) NOT NULL, 
	name VARCHAR(128) NOT NULL, 
	description TEXT, 
	enabled BOOLEAN DEFAULT '1' NOT NULL, 
	version BIGINT DEFAULT '1' NOT NULL, 
	dag_json JSON NOT NULL, 
	created_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	updated_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	CONSTRAINT pk_job_chain_definition PRIMARY KEY (chain_id), 
	CONSTRAINT uk_job_chain_definition_name UNIQUE (name)
);
CREATE TABLE job_definition (
	job_id VARCHAR(64) NOT NULL, 
	name VARCHAR(128) NOT NULL, 
	description TEXT, 
	type VARCHAR(64) NOT NULL, 
	enabled BOOLEAN DEFAULT '1' NOT NULL, 
	config_json JSON NOT NULL, 
	created_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	updated_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	CONSTRAINT pk_job_definition PRIMARY KEY (job_id)
);
CREATE TABLE job_run (
	run_id VARCHAR(64) NOT NULL, 
	chain_id VARCHAR(64), 
	job_id VARCHAR(64), 
	job_name VARCHAR(128) NOT NULL, 
	status VARCHAR(32) NOT NULL, 
	dag_json JSON NOT NULL, 
	created_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	updated_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	CONSTRAINT pk_job_run PRIMARY KEY (run_id)
);
CREATE TABLE job_run_checkpoint (
	run_id VARCHAR(64) NOT NULL, 
	node_id VARCHAR(255) NOT NULL, 
	checkpoint_json JSON NOT NULL, 
	created_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	updated_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	CONSTRAINT pk_job_run_checkpoint PRIMARY KEY (run_id, node_id)
);
CREATE TABLE job_run_node (
	run_id VARCHAR(64) NOT NULL, 
	node_id VARCHAR(255) NOT NULL, 
	status VARCHAR(32) DEFAULT 'PENDING' NOT NULL, 
	attempt INTEGER DEFAULT '0' NOT NULL, 
	last_error TEXT, 
	artifact_json JSON, 
	started_at DATETIME, 
	ended_at DATETIME, 
	created_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	updated_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	CONSTRAINT pk_job_run_node PRIMARY KEY (run_id, node_id)
);
CREATE TABLE lineage_cursor (
	name VARCHAR(64) NOT NULL, 
	last_id BIGINT NOT NULL, 
	updated_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	CONSTRAINT pk_lineage_cursor PRIMARY KEY (name)
);
INSERT INTO "lineage_cursor" VALUES('observations',0,'2026-11-17 10:30:03.788000');
CREATE TABLE lineage_dead_letter (
	id INTEGER NOT NULL, 
	tenant_id BIGINT, 
	source VARCHAR(255), 
	source_type VARCHAR(32), 
	reason TEXT NOT NULL, 
	payload TEXT NOT NULL, 
	payload_hash CHAR(64) NOT NULL, 
	status VARCHAR(16) DEFAULT 'OPEN' NOT NULL, 
	retry_count INTEGER DEFAULT '0' NOT NULL, 
	created_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	updated_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	CONSTRAINT pk_lineage_dead_letter PRIMARY KEY (id)
);
INSERT INTO "lineage_dead_letter" VALUES(1,1,'demo','compute','eventTime: expected a time such as 2024-05-01T12:00:00.000Z, a date, or an epoch number of 10, 13, 16 or 19 digits','{"eventTime": "never", "run": {"runId": "not a uuid"}, "job": {"namespace": "n", "name": "refused"}}','609094fafc748b28785c399280f655162539bf9021f2ded08a307995f2df0b50','OPEN',0,'2026-11-17 10:30:13.928000','2026-11-17 10:30:13.928000');
CREATE TABLE lineage_events (
	id INTEGER NOT NULL, 
	tenant_id BIGINT NOT NULL, 
	tenant_code VARCHAR(64) NOT NULL, 
	tenant_name VARCHAR(128) NOT NULL, 
	event_time DATETIME NOT NULL, 
	event_type VARCHAR(32), 
	run_uuid CHAR(36), 
	job_name VARCHAR(255), 
	job_namespace VARCHAR(255), 
	producer VARCHAR(512), 
	_event_type VARCHAR(64) DEFAULT 'RUN_EVENT' NOT NULL, 
	event JSON NOT NULL, 
	created_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	fingerprint CHAR(64) NOT NULL, 
	graph_applied_at DATETIME, source_type VARCHAR(32), 
	CONSTRAINT pk_lineage_events PRIMARY KEY (id), 
	CONSTRAINT ck_lineage_events_event_type CHECK (_event_type IN ('RUN_EVENT', 'DATASET_EVENT', 'JOB_EVENT')), 
	CONSTRAINT uk_le_fingerprint UNIQUE (tenant_id, fingerprint)
);
INSERT INTO "lineage_events" VALUES(1,7,'acme','Acme','2026-03-01 10:00:00.000000','COMPLETE','0195e3a0-7b1c-7d00-8000-000000000001','gravitino.create_catalog','gravitino://tenant/7','https://gravitino.apache.org/listener','RUN_EVENT','{"eventType":"COMPLETE","eventTime":"2026-03-01T10:00:00Z","producer":"https://gravitino.apache.org/listener","schemaURL":"https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent","run":{"runId":"0195e3a0-7b1c-7d00-8000-000000000001"},"job":{"namespace":"gravitino://tenant/7","name":"gravitino.create_catalog"},"inputs":[],"outputs":[{"namespace":"gravitino://tenant/7/lake","name":"hive","facets":{"gravitino":{"tenantId":7,"tenantCode":"acme","tenantName":"Acme","type":"RELATIONAL","provider":"hive","properties":{"uri":"thrift://h"}}}}]}','2026-11-17 10:30:12.756000','20d04a3dc8ff3b7160b0778627b5b9f2171b6d3cae30d3bda13b716a81887a59','2026-11-17 10:30:12.755268','gravitino');
INSERT INTO "lineage_events" VALUES(2,7,'acme','Acme','2026-03-01 10:01:00.000000','COMPLETE','0195e3a0-7b1c-7d00-8000-000000000002','gravitino.create_schema','gravitino://tenant/7','https://gravitino.apache.org/listener','RUN_EVENT','{"eventType":"COMPLETE","eventTime":"2026-03-01T10:01:00Z","producer":"https://gravitino.apache.org/listener","schemaURL":"https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent","run":{"runId":"0195e3a0-7b1c-7d00-8000-000000000002"},"job":{"namespace":"gravitino://tenant/7","name":"gravitino.create_schema"},"inputs":[],"outputs":[{"namespace":"gravitino://tenant/7/lake/hive","name":"sales","facets":{"gravitino":{"tenantId":7,"tenantCode":"acme","tenantName":"Acme","description":"all sales"}}}]}','2026-11-17 10:30:12.841000','0a78ad4aa6c7f7208ac22dd6fd88c84c8ca206e9aee8cfbfc167bf30b3f65130','2026-11-17 10:30:12.841188','gravitino');
INSERT INTO "lineage_events" VALUES(3,7,'acme','Acme','2026-03-01 10:02:00.000000','COMPLETE','0195e3a0-7b1c-7d00-8000-000000000003','gravitino.create_table','gravitino://tenant/7','https://gravitino.apache.org/listener','RUN_EVENT','{"eventType":"COMPLETE","eventTime":"2026-03-01T10:02:00Z","producer":"https://gravitino.apache.org/listener","schemaURL":"https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent","run":{"runId":"0195e3a0-7b1c-7d00-8000-000000000003"},"job":{"namespace":"gravitino://tenant/7","name":"gravitino.create_table"},"inputs":[],"outputs":[{"namespace":"gravitino://tenant/7/lake/hive","name":"sales.orders","facets":{"gravitino":{"tenantId":7,"tenantCode":"acme","tenantName":"Acme","description":"all orders","properties":{"format":"orc"},"creator":"ann"},"schema":{"fields":[{"name":"id","type":"long"},{"name":"amount","type":"decimal(10,2)"},{"name":"sex","type":"int"},{"name":"state","type":"string"}]}}}]}','2026-11-17 10:30:12.897000','a2c4c7a9a9de6244a4e0359ba6dd8de4768b3b0ed613b77762ff00864049316c','2026-11-17 10:30:12.896642','gravitino');
INSERT INTO "lineage_events" VALUES(4,7,'acme','Acme','2026-03-01 10:03:00.000000','COMPLETE','0195e3a0-7b1c-7d00-8000-000000000004','gravitino.create_table','gravitino://tenant/7','https://gravitino.apache.org/listener','RUN_EVENT','{"eventType":"COMPLETE","eventTime":"2026-03-01T10:03:00Z","producer":"https://gravitino.apache.org/listener","schemaURL":"https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent","run":{"runId":"0195e3a0-7b1c-7d00-8000-000000000004"},"job":{"namespace":"gravitino://tenant/7","name":"gravitino.create_table"},"inputs":[],"outputs":[{"namespace":"gravitino://tenant/7/lake/hive","name":"sales.customers","facets":{"gravitino":{"tenantId":7,"tenantCode":"acme","tenantName":"Acme"},"schema":{"fields":[{"name":"id","type":"long"},{"name":"name","type":"string"}]}}}]}','2026-11-17 10:30:12.958000','13a07133ca139c9fd26415224e6bca4c385fcf4c437c5990dbc1991b1f33bf84','2026-11-17 10:30:12.957439','gravitino');
INSERT INTO "lineage_events" VALUES(5,7,'acme','Acme','2026-03-01 10:04:00.000000','COMPLETE','0195e3a0-7b1c-7d00-8000-000000000005','gravitino.create_table','gravitino://tenant/7','https://gravitino.apache.org/listener','RUN_EVENT','{"eventType":"COMPLETE","eventTime":"2026-03-01T10:04:00Z","producer":"https://gravitino.apache.org/listener","schemaURL":"https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent","run":{"runId":"0195e3a0-7b1c-7d00-8000-000000000005"},"job":{"namespace":"gravitino://tenant/7","name":"gravitino.create_table"},"inputs":[],"outputs":[{"namespace":"gravitino://tenant/7/lake/hive","name":"sales.dropped","facets":{"gravitino":{"tenantId":7,"tenantCode":"acme","tenantName":"Acme"},"schema":{"fields":[{"name":"id","type":"long"}]}}}]}','2026-11-17 10:30:13.016000','af92c111d9248500cf4670f7baf7c3c971bf8c108554ef11261308886f76aaf6','2026-11-17 10:30:13.015228','gravitino');
INSERT INTO "lineage_events" VALUES(6,7,'acme','Acme','2026-03-01 10:05:00.000000','COMPLETE','0195e3a0-7b1c-7d00-8000-000000000006','gravitino.create_tag','gravitino://tenant/7','https://gravitino.apache.org/listener','RUN_EVENT','{"eventType":"COMPLETE","eventTime":"2026-03-01T10:05:00Z","producer":"https://gravitino.apache.org/listener","schemaURL":"https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent","run":{"runId":"0195e3a0-7b1c-7d00-8000-000000000006"},"job":{"namespace":"gravitino://tenant/7","name":"gravitino.create_tag"},"inputs":[],"outputs":[{"namespace":"gravitino://tenant/7/lake/hive","name":"pii","facets":{"schema":{"fields":[{"name":"name","type":"string","description":"pii"},{"name":"comment","type":"string","description":"personal"}]},"gravitino":{"tenantId":7,"tenantCode":"acme","tenantName":"Acme"}}}]}','2026-11-17 10:30:13.082000','ddbcaa434764f403cfccb2be0d76204f73f65e6c9d196b06ee5653fa2b22c743','2026-11-17 10:30:13.081511','gravitino');
INSERT INTO "lineage_events" VALUES(7,7,'acme','Acme','2026-03-01 10:06:00.000000','COMPLETE','0195e3a0-7b1c-7d00-8000-000000000007','gravitino.create_valuedomain','gravitino://tenant/7','https://gravitino.apache.org/listener','RUN_EVENT','{"eventType":"COMPLETE","eventTime":"2026-03-01T10:06:00Z","producer":"https://gravitino.apache.org/listener","schemaURL":"https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent","run":{"runId":"0195e3a0-7b1c-7d00-8000-000000000007"},"job":{"namespace":"gravitino://tenant/7","name":"gravitino.create_valuedomain"},"inputs":[],"outputs":[{"namespace":"gravitino://tenant/7/lake/hive","name":"SEX","facets":{"schema":{"fields":[{"name":"code","type":"string","description":"SEX"},{"name":"name","type":"string","description":"sex"},{"name":"domainType","type":"string","description":"ENUM"},{"name":"items","type":"string","description":"1:m,2:f"}]},"gravitino":{"tenantId":7,"tenantCode":"acme","tenantName":"Acme"}}}]}','2026-11-17 10:30:13.150000','05c1fd078d2ec709ba425b2c2bf7dbf5c10c2613088ca8a931bf6702c86efe44','2026-11-17 10:30:13.149965','gravitino');
INSERT INTO "lineage_events" VALUES(8,7,'acme','Acme','2026-03-01 10:07:00.000000','COMPLETE','0195e3a0-7b1c-7d00-8000-000000000008','gravitino.create_unit','gravitino://tenant/7','https://gravitino.apache.org/listener','RUN_EVENT','{"eventType":"COMPLETE","eventTime":"2026-03-01T10:07:00Z","producer":"https://gravitino.apache.org/listener","schemaURL":"https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent","run":{"runId":"0195e3a0-7b1c-7d00-8000-000000000008"},"job":{"namespace":"gravitino://tenant/7","name":"gravitino.create_unit"},"inputs":[],"outputs":[{"namespace":"gravitino://tenant/7/lake/hive","name":"CNY","facets":{"schema":{"fields":[{"name":"code","type":"string","description":"CNY"},{"name":"name","type":"string","description":"Yuan"},{"name":"symbol","type":"string","description":"¥"}]},"gravitino":{"tenantId":7,"tenantCode":"acme","tenantName":"Acme"}}}]}','2026-11-17 10:30:13.244000','c336141d046cebd438f6aa92b08fd27d82ed9cf9653794b31c5840eaecccae88','2026-11-17 10:30:13.243515','gravitino');
INSERT INTO "lineage_events" VALUES(9,7,'acme','Acme','2026-03-01 10:08:00.000000','COMPLETE','0195e3a0-7b1c-7d00-8000-000000000009','gravitino.register_metric','gravitino://tenant/7','https://gravitino.apache.org/listener','RUN_EVENT','{"eventType":"COMPLETE","eventTime":"2026-03-01T10:08:00Z","producer":"https://gravitino.apache.org/listener","schemaURL":"https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent","run":{"runId":"0195e3a0-7b1c-7d00-8000-000000000009"},"job":{"namespace":"gravitino://tenant/7","name":"gravitino.register_metric"},"inputs":[],"outputs":[{"namespace":"gravitino://tenant/7/lake/hive","name":"sales.gmv","facets":{"schema":{"fields":[{"name":"code","type":"string","description":"gmv"},{"name":"name","type":"string","description":"GMV"},{"name":"metricType","type":"string","description":"ATOMIC"},{"name":"comment","type":"string","description":"gross"},{"name":"unit","type":"string","description":"CNY"},{"name":"calculationFormula","type":"string","description":"SUM(amount)"},{"name":"refCatalogName","type":"string","description":"hive"},{"name":"refSchemaName","type":"string","description":"sales"},{"name":"refTableName","type":"string","description":"orders"},{"name":"measureColumns","type":"string","description":"[\"amount\"]"},{"name":"filterColumns","type":"string","description":"[{\"name\": \"state\"}]"}]},"gravitino":{"tenantId":7,"tenantCode":"acme","tenantName":"Acme"}}}]}','2026-11-17 10:30:13.323000','be8230dd62bcaf343db58b03875579cfececcbf4cfbe72ded7ed956adcc03736','2026-11-17 10:30:13.322808','gravitino');
INSERT INTO "lineage_events" VALUES(10,7,'acme','Acme','2026-03-01 10:09:00.000000','COMPLETE','0195e3a0-7b1c-7d00-8000-000000000010','gravitino.associate_tags','gravitino://tenant/7','https://gravitino.apache.org/listener','RUN_EVENT','{"eventType":"COMPLETE","eventTime":"2026-03-01T10:09:00Z","producer":"https://gravitino.apache.org/listener","schemaURL":"https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent","run":{"runId":"0195e3a0-7b1c-7d00-8000-000000000010"},"job":{"namespace":"gravitino://tenant/7","name":"gravitino.associate_tags"},"inputs":[],"outputs":[{"namespace":"gravitino://tenant/7/lake/hive","name":"sales.orders.sex","facets":{"gravitino":{"tenantId":7,"tenantCode":"acme","tenantName":"Acme"},"gravitinoTag":{"objectType":"COLUMN","tagsToAdd":["pii","vd:SEX"]}}}]}','2026-11-17 10:30:13.394000','a84bd4459f096e3372e0190d53a0411c71d43193982cb2d5c68a1f61d556be2f','2026-11-17 10:30:13.393740','gravitino');
INSERT INTO "lineage_events" VALUES(11,7,'acme','Acme','2026-03-01 10:10:00.000000','COMPLETE','0195e3a0-7b1c-7d00-8000-000000000011','gravitino.alter_table','gravitino://tenant/7','https://gravitino.apache.org/listener','RUN_EVENT','{"eventType":"COMPLETE","eventTime":"2026-03-01T10:10:00Z","producer":"https://gravitino.apache.org/listener","schemaURL":"https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent","run":{"runId":"0195e3a0-7b1c-7d00-8000-000000000011"},"job":{"namespace":"gravitino://tenant/7","name":"gravitino.alter_table"},"inputs":[],"outputs":[{"namespace":"gravitino://tenant/7/lake/hive","name":"sales.orders","facets":{"gravitino":{"tenantId":7,"tenantCode":"acme","tenantName":"Acme","changes":[{"type":"ADD_COLUMN","columnName":"day","dataType":"date"},{"type":"RENAME_COLUMN","oldColumnName":"state","newColumnName":"status"}]}}}]}','2026-11-17 10:30:13.436000','2f0fe788ef0ebe7ad4657278ccdbbd72a26a731eaf4b0371bb6a97c37956a035','2026-11-17 10:30:13.435470','gravitino');
INSERT INTO "lineage_events" VALUES(12,7,'acme','Acme','2026-03-01 10:12:00.000000','COMPLETE','0195e3a0-7b1c-7d00-8000-000000000012','gravitino.alter_table','gravitino://tenant/7','https://gravitino.apache.org/listener','RUN_EVENT','{"eventType":"COMPLETE","eventTime":"2026-03-01T10:12:00Z","producer":"https://gravitino.apache.org/listener","schemaURL":"https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent","run":{"runId":"0195e3a0-7b1c-7d00-8000-000000000012"},"job":{"namespace":"gravitino://tenant/7","name":"gravitino.alter_table"},"inputs":[],"outputs":[{"namespace":"gravitino://tenant/7/lake/hive","name":"sales.customers","facets":{"gravitino":{"tenantId":7,"tenantCode":"acme","tenantName":"Acme","changes":[{"type":"RENAME_TABLE","newName":"clients"}]}}}]}','2026-11-17 10:30:13.506000','c6157e9eda7a5971c6bc268ff6bca3364735d3a730b2c726e31fbce838a890a6','2026-11-17 10:30:13.505608','gravitino');
INSERT INTO "lineage_events" VALUES(13,7,'acme','Acme','2026-03-01 10:13:00.000000','COMPLETE','0195e3a0-7b1c-7d00-8000-000000000013','gravitino.drop_table','gravitino://tenant/7','https://gravitino.apache.org/listener','RUN_EVENT','{"eventType":"COMPLETE","eventTime":"2026-03-01T10:13:00Z","producer":"https://gravitino.apache.org/listener","schemaURL":"https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent","run":{"runId":"0195e3a0-7b1c-7d00-8000-000000000013"},"job":{"namespace":"gravitino://tenant/7","name":"gravitino.drop_table"},"inputs":[],"outputs":[{"namespace":"gravitino://tenant/7/lake/hive","name":"sales.dropped","facets":{"gravitino":{"tenantId":7,"tenantCode":"acme","tenantName":"Acme"}}}]}','2026-11-17 10:30:13.617000','210cb570366b1f4fcc33eefd6d650684d1741b89d1b9665fd2e851d1ad74f1f1','2026-11-17 10:30:13.616233','gravitino');
INSERT INTO "lineage_events" VALUES(14,7,'acme','Acme','2026-03-01 10:11:00.000000','COMPLETE','0195e3a0-7b1c-7d00-8000-000000000014','gravitino.load_table','gravitino://tenant/7','https://gravitino.apache.org/listener','RUN_EVENT','{"eventType":"COMPLETE","eventTime":"2026-03-01T10:11:00Z","producer":"https://gravitino.apache.org/listener","schemaURL":"https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent","run":{"runId":"0195e3a0-7b1c-7d00-8000-000000000014"},"job":{"namespace":"gravitino://tenant/7","name":"gravitino.load_table"},"inputs":[],"outputs":[{"namespace":"gravitino://tenant/7/lake/hive","name":"sales.customers","facets":{"gravitino":{"tenantId":7,"tenantCode":"acme","tenantName":"Acme"},"schema":{"fields":[{"name":"id","type":"long"},{"name":"name","type":"string"},{"name":"late","type":"int"}]}}}]}','2026-11-17 10:30:13.699000','ed5b0878059dba780d1c796a8ebffc0699d622a191cee4589198b9d5092e6d0d','2026-11-17 10:30:13.698617','gravitino');
INSERT INTO "lineage_events" VALUES(15,1,'demo','Demo','2026-03-01 10:20:00.000000','COMPLETE','0195e3a0-7b1c-7d00-8000-000000000015','daily','prod','https://example.org/spark','RUN_EVENT','{"eventType":"COMPLETE","eventTime":"2026-03-01T10:20:00Z","producer":"https://example.org/spark","schemaURL":"https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent","run":{"runId":"0195e3a0-7b1c-7d00-8000-000000000015"},"job":{"namespace":"prod","name":"daily","facets":{"sql":{"query":"insert into daily select id, sum(amount) as total from orders group by id","dialect":"postgres"}}},"inputs":[{"namespace":"postgres://db.example:5432","name":"shop.public.orders","facets":{"schema":{"fields":[{"name":"id","type":"int"},{"name":"amount","type":"numeric"}]}}}],"outputs":[{"namespace":"postgres://db.example:5432","name":"shop.public.daily","facets":{"columnLineage":{"fields":{"total":{"inputFields":[{"namespace":"postgres://db.example:5432","name":"shop.public.orders","field":"amount","transformations":[{"type":"DIRECT","subtype":"AGGREGATION","masking":false}]}]},"id":{"inputFields":[{"namespace":"postgres://db.example:5432","name":"shop.public.orders","field":"id","transformations":[{"type":"DIRECT","subtype":"IDENTITY","masking":false}]}]}}}}}]}','2026-11-17 10:30:13.754000','b4d46e44b3c8ba4ea08ba23dfa63d135cd31e845671f803b1c149263a3c4f0c7','2026-11-17 10:30:13.753725','compute');
INSERT INTO "lineage_events" VALUES(16,1,'demo','Demo','2026-03-01 10:21:00.000000','COMPLETE','0195e3a0-7b1c-7d00-8000-000000000016','daily','prod','https://example.org/spark','RUN_EVENT','{"eventType":"COMPLETE","eventTime":"2026-03-01T10:21:00Z","producer":"https://example.org/spark","schemaURL":"https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent","run":{"runId":"0195e3a0-7b1c-7d00-8000-000000000016"},"job":{"namespace":"prod","name":"daily","facets":{"sql":{"query":"insert into daily select id, sum(amount) as total from orders group by id","dialect":"postgres"}}},"inputs":[{"namespace":"postgres://db.example:5432","name":"shop.public.orders","facets":{"schema":{"fields":[{"name":"id","type":"int"},{"name":"amount","type":"numeric"}]}}}],"outputs":[{"namespace":"postgres://db.example:5432","name":"shop.public.daily","facets":{}}]}','2026-11-17 10:30:13.797000','ed691b7b9e8bd9316b3ada9f3eeff6f8d57444947bf969744a2e96405c0cb645','2026-11-17 10:30:13.796674','compute');
INSERT INTO "lineage_events" VALUES(17,1,'demo','Demo','2026-03-01 10:22:00.000000','COMPLETE','0195e3a0-7b1c-7d00-8000-000000000017','copy','prod','https://example.org/spark','RUN_EVENT','{"eventType":"COMPLETE","eventTime":"2026-03-01T10:22:00Z","producer":"https://example.org/spark","schemaURL":"https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent","run":{"runId":"0195e3a0-7b1c-7d00-8000-000000000017"},"job":{"namespace":"prod","name":"copy","facets":{"sql":{"query":"insert into report (id, total) select id, total from daily","dialect":"postgres"}}},"inputs":[{"namespace":"postgres://db.example:5432","name":"shop.public.daily","facets":{"schema":{"fields":[{"name":"id","type":"int"},{"name":"total","type":"numeric"}]}}}],"outputs":[{"namespace":"postgres://db.example:5432","name":"shop.public.report","facets":{}}]}','2026-11-17 10:30:13.832000','c2ab7f2d8bba7d0b926d966a0cef2696687b0e9e3de9e21016fdce8c339fcb83','2026-11-17 10:30:13.832220','compute');
INSERT INTO "lineage_events" VALUES(18,1,'demo','Demo','2026-03-01 10:23:00.000000','START','0195e3a0-7b1c-7d00-8000-000000000018','copy','prod','https://example.org/spark','RUN_EVENT','{"eventType":"START","eventTime":"2026-03-01T10:23:00Z","producer":"https://example.org/spark","schemaURL":"https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent","run":{"runId":"0195e3a0-7b1c-7d00-8000-000000000018"},"job":{"namespace":"prod","name":"copy","facets":{}},"inputs":[{"namespace":"postgres://db.example:5432","name":"shop.public.daily","facets":{}}],"outputs":[]}','2026-11-17 10:30:13.864000','c48a16c39d77743ded91dba6d78b3eba852cb6cc22d58b4886e24798a3452e5d','2026-11-17 10:30:13.864009','compute');
INSERT INTO "lineage_events" VALUES(19,1,'demo','Demo','2026-03-01 10:24:00.000000',NULL,NULL,NULL,NULL,'https://example.org/spark','DATASET_EVENT','{"eventTime":"2026-03-01T10:24:00Z","producer":"https://example.org/spark","schemaURL":"https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/DatasetEvent","dataset":{"namespace":"postgres://db.example:5432","name":"shop.public.report","facets":{"documentation":{"description":"the report"},"schema":{"fields":[{"name":"id","type":"int"},{"name":"total","type":"numeric"},{"name":"note","type":"text"}]}}}}','2026-11-17 10:30:13.898000','ba78d9d28e5f495ada6a86f2226690e74bb912575e845552dedcdc768e577d91','2026-11-17 10:30:13.898141','compute');
CREATE TABLE lineage_rebuild (
	tenant_id BIGINT NOT NULL, 
	requested BIGINT NOT NULL, 
	answered BIGINT DEFAULT '0' NOT NULL, 
	requested_at DATETIME NOT NULL, 
	rebuilt_at DATETIME, 
	rebuilt_from DATETIME, 
	CONSTRAINT pk_lineage_rebuild PRIMARY KEY (tenant_id)
);
CREATE TABLE lineage_sql (
	tenant_id BIGINT NOT NULL, 
	sql_id VARCHAR(64) NOT NULL, 
	runs BIGINT NOT NULL, 
	CONSTRAINT pk_lineage_sql PRIMARY KEY (tenant_id, sql_id)
);
INSERT INTO "lineage_sql" VALUES(1,'sql:23526f423bb910a1101b1c9ff127c98adf9acc7d',2);
INSERT INTO "lineage_sql" VALUES(1,'sql:05e12b89f842ca433b010f3b954167539c1891ff',1);
INSERT INTO "lineage_sql" VALUES(1,'sql:edc32db3732daeb34aad78d5727fda3f4d59ed85',1);
CREATE TABLE lineage_sql_run (
	tenant_id BIGINT NOT NULL, 
	sql_id VARCHAR(64) NOT NULL, 
	run_uuid CHAR(36) NOT NULL, 
	created_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	CONSTRAINT pk_lineage_sql_run PRIMARY KEY (tenant_id, sql_id, run_uuid)
);
INSERT INTO "lineage_sql_run" VALUES(1,'sql:23526f423bb910a1101b1c9ff127c98adf9acc7d','0195e3a0-7b1c-7d00-8000-000000000015','2026-11-17 10:30:13.745000');
INSERT INTO "lineage_sql_run" VALUES(1,'sql:23526f423bb910a1101b1c9ff127c98adf9acc7d','0195e3a0-7b1c-7d00-8000-000000000016','2026-11-17 10:30:13.787000');
INSERT INTO "lineage_sql_run" VALUES(1,'sql:05e12b89f842ca433b010f3b954167539c1891ff','0195e3a0-7b1c-7d00-8000-000000000017','2026-11-17 10:30:13.824000');
INSERT INTO "lineage_sql_run" VALUES(1,'sql:edc32db3732daeb34aad78d5727fda3f4d59ed85','0195e3a0-7b1c-7d00-8000-000000000018','2026-11-17 10:30:13.859000');
CREATE TABLE metrics_etl_log (
	id INTEGER NOT NULL, 
	table_name VARCHAR(255) NOT NULL, 
	op_time VARCHAR(255) NOT NULL, 
	arrival_time DATETIME NOT NULL, reported_time DATETIME, 
	CONSTRAINT pk_metrics_etl_log PRIMARY KEY (id), 
	CONSTRAINT uk_etl_log UNIQUE (table_name, op_time)
);
INSERT INTO "metrics_etl_log" VALUES(1,'ORDERS','20260301','2026-11-17 10:30:11.990789','2026-11-17 10:30:11.990789');
INSERT INTO "metrics_etl_log" VALUES(2,'UNRELATED','20260301','2026-11-17 10:30:12.627926',NULL);
CREATE TABLE metrics_kpi (
	id INTEGER NOT NULL, 
	kpi_id VARCHAR(64) NOT NULL, 
	name VARCHAR(255), 
	kpi_type VARCHAR(16) NOT NULL, 
	model_id VARCHAR(255), 
	expression TEXT NOT NULL, 
	depends_on JSON, 
	created_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	updated_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	CONSTRAINT pk_metrics_kpi PRIMARY KEY (id), 
	CONSTRAINT uk_kpi_id UNIQUE (kpi_id)
);
INSERT INTO "metrics_kpi" VALUES(1,'KD1001','Order amount','EXTENDED','MODEL-01','SUM(amount)',NULL,'2026-11-17 10:30:08.369000','2026-11-17 10:30:08.369000');
INSERT INTO "metrics_kpi" VALUES(2,'KD1002','Orders','EXTENDED','MODEL-01','COUNT(*)',NULL,'2026-11-17 10:30:08.369000','2026-11-17 10:30:08.369000');
INSERT INTO "metrics_kpi" VALUES(3,'KD1003','Nothing','EXTENDED','MODEL-02','COUNT(*)',NULL,'2026-11-17 10:30:08.369000','2026-11-17 10:30:08.369000');
INSERT INTO "metrics_kpi" VALUES(4,'KD1004','All','EXTENDED','MODEL-03','COUNT(*)',NULL,'2026-11-17 10:30:08.369000','2026-11-17 10:30:08.369000');
INSERT INTO "metrics_kpi" VALUES(5,'KD1005','Everything','EXTENDED','MODEL-04','COUNT(*)',NULL,'2026-11-17 10:30:08.369000','2026-11-17 10:30:08.369000');
INSERT INTO "metrics_kpi" VALUES(6,'KC2001','Average order','COMPUTED',NULL,'KD1001 / KD1002','["KD1001","KD1002"]','2026-11-17 10:30:08.369000','2026-11-17 10:30:08.369000');
CREATE TABLE metrics_kpi_value (
	id INTEGER NOT NULL, 
	kpi_id VARCHAR(64) NOT NULL, 
	op_time VARCHAR(255) NOT NULL, 
	model_id VARCHAR(255), 
	dims JSON NOT NULL, 
	dims_hash CHAR(64) NOT NULL, 
	kpi_value DOUBLE NOT NULL, 
	created_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	updated_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	CONSTRAINT pk_metrics_kpi_value PRIMARY KEY (id), 
	CONSTRAINT uk_kpi_value UNIQUE (kpi_id, op_time, dims_hash)
);
INSERT INTO "metrics_kpi_value" VALUES(1,'KD1001','20260301','MODEL-01','{"region":"N"}','9ad265109aa90faefb4ef2e029d4279877a9ceb3390e19a64f18d3595058cf90',5.0,'2026-11-17 10:30:12.507000','2026-11-17 10:30:12.507000');
INSERT INTO "metrics_kpi_value" VALUES(2,'KD1002','20260301','MODEL-01','{"region":"N"}','9ad265109aa90faefb4ef2e029d4279877a9ceb3390e19a64f18d3595058cf90',1.0,'2026-11-17 10:30:12.507000','2026-11-17 10:30:12.507000');
INSERT INTO "metrics_kpi_value" VALUES(3,'KD1001','20260301','MODEL-01','{"region":"S"}','056e5a0d1b6e200cefcda6220cf09fdc840243c2086a85ad9268823a0bf5f10a',7.0,'2026-11-17 10:30:12.507000','2026-11-17 10:30:12.507000');
INSERT INTO "metrics_kpi_value" VALUES(4,'KD1002','20260301','MODEL-01','{"region":"S"}','056e5a0d1b6e200cefcda6220cf09fdc840243c2086a85ad9268823a0bf5f10a',1.0,'2026-11-17 10:30:12.507000','2026-11-17 10:30:12.507000');
CREATE TABLE metrics_model (
	id INTEGER NOT NULL, 
	model_id VARCHAR(255) NOT NULL, 
	name VARCHAR(255) NOT NULL, 
	state VARCHAR(16) DEFAULT '0' NOT NULL, 
	source VARCHAR(64), 
	source_sql TEXT NOT NULL, 
	dimensions JSON NOT NULL, 
	target VARCHAR(255), 
	created_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	updated_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, due VARCHAR(16), published_at DATETIME, 
	CONSTRAINT pk_metrics_model PRIMARY KEY (id), 
	CONSTRAINT uk_model_id UNIQUE (model_id)
);
INSERT INTO "metrics_model" VALUES(1,'MODEL-01','Daily orders','1','platform','SELECT ${dimGroup}, ${kpis} FROM orders WHERE op_time = ${op_time} GROUP BY ${dimGroup}','["region"]',NULL,'2026-11-17 10:30:08.367000','2026-11-17 10:30:09.204690','+1 08:30','2026-11-17 10:30:09.204000');
INSERT INTO "metrics_model" VALUES(2,'MODEL-02','Fails','1','platform','SELECT ${dimGroup}, ${kpis} FROM absent WHERE op_time = ${op_time} GROUP BY ${dimGroup}','["region"]',NULL,'2026-11-17 10:30:08.367000','2026-11-17 10:30:10.234786',NULL,'2026-11-17 10:30:10.234000');
INSERT INTO "metrics_model" VALUES(3,'MODEL-03','Not published','0','platform','SELECT ${kpis} FROM orders WHERE op_time = ${op_time}','[]',NULL,'2026-11-17 10:30:08.367000','2026-11-17 10:30:08.367000',NULL,NULL);
INSERT INTO "metrics_model" VALUES(4,'MODEL-04','Waits for shops','1','platform','SELECT ${kpis} FROM orders WHERE op_time = ${op_time}','[]',NULL,'2026-11-17 10:30:08.367000','2026-11-17 10:30:11.353100',NULL,'2026-11-17 10:30:11.357000');
CREATE TABLE metrics_model_dependency (
	id INTEGER NOT NULL, 
	model_id VARCHAR(255) NOT NULL, 
	dependency_table_name VARCHAR(255) NOT NULL, 
	CONSTRAINT pk_metrics_model_dependency PRIMARY KEY (id), 
	CONSTRAINT uk_model_dependency UNIQUE (model_id, dependency_table_name)
);
INSERT INTO "metrics_model_dependency" VALUES(1,'MODEL-01','ORDERS');
INSERT INTO "metrics_model_dependency" VALUES(2,'MODEL-02','ORDERS');
INSERT INTO "metrics_model_dependency" VALUES(3,'MODEL-03','ORDERS');
INSERT INTO "metrics_model_dependency" VALUES(4,'MODEL-03','SHOPS_yyyymmdd');
INSERT INTO "metrics_model_dependency" VALUES(5,'MODEL-04','ORDERS');
INSERT INTO "metrics_model_dependency" VALUES(6,'MODEL-04','SHOPS');
CREATE TABLE metrics_model_input (
	id INTEGER NOT NULL, 
	model_id VARCHAR(255) NOT NULL, 
	op_time VARCHAR(255) NOT NULL, 
	dependency_table_name VARCHAR(255) NOT NULL, 
	arrival_time DATETIME NOT NULL, 
	CONSTRAINT pk_metrics_model_input PRIMARY KEY (id), 
	CONSTRAINT uk_model_input UNIQUE (model_id, op_time, dependency_table_name)
);
INSERT INTO "metrics_model_input" VALUES(1,'MODEL-01','20260301','ORDERS','2026-11-17 10:30:11.990789');
INSERT INTO "metrics_model_input" VALUES(2,'MODEL-02','20260301','ORDERS','2026-11-17 10:30:11.990789');
CREATE TABLE metrics_model_running (
	model_id VARCHAR(255) NOT NULL, 
	op_time VARCHAR(255) NOT NULL, 
	task_id INTEGER NOT NULL, 
	CONSTRAINT pk_metrics_model_running PRIMARY KEY (model_id, op_time)
);
CREATE TABLE metrics_task_log (
	id INTEGER NOT NULL, 
	model_id VARCHAR(255) NOT NULL, 
	op_time VARCHAR(255) NOT NULL, 
	status VARCHAR(255) NOT NULL, 
	start_time DATETIME, 
	end_time DATETIME, 
	message VARCHAR(2000), 
	compute_count INTEGER, 
	storage_count INTEGER, versions JSON, missing_tables JSON, trigger_code VARCHAR(16), attempt INTEGER DEFAULT '1' NOT NULL, work_id BIGINT, run_id CHAR(36), reported_at DATETIME, 
	CONSTRAINT pk_metrics_task_log PRIMARY KEY (id)
);
INSERT INTO "metrics_task_log" VALUES(1,'MODEL-01','20260301','SUCCESS','2026-11-17 10:30:12.376207','2026-11-17 10:30:12.515927',NULL,2,4,'{"ORDERS":"2026-11-17T10:30:11.990789+00:00"}',NULL,'ARRIVAL',1,1,'dc87c9b4-4667-476c-980b-55b07201e8c5','2026-11-17 10:30:12.548608');
INSERT INTO "metrics_task_log" VALUES(2,'MODEL-02','20260301','FAILED','2026-11-17 10:30:12.410108','2026-11-17 10:30:12.531957','no such table: absent',NULL,NULL,'{"ORDERS":"2026-11-17T10:30:11.990789+00:00"}',NULL,'ARRIVAL',1,2,'89d797af-b1e5-4651-82bd-f076bc2a939f',NULL);
CREATE TABLE metrics_webhook_attempt (
	id INTEGER NOT NULL, 
	delivery_id BIGINT NOT NULL, 
	attempt_no INTEGER NOT NULL, 
	started_at DATETIME NOT NULL, 
	latency_ms INTEGER, 
	http_status INTEGER, 
	outcome VARCHAR(16) NOT NULL, 
	error VARCHAR(1000), 
	answer VARCHAR(1024), 
	CONSTRAINT pk_metrics_webhook_attempt PRIMARY KEY (id), 
	CONSTRAINT uk_webhook_attempt UNIQUE (delivery_id, attempt_no)
);
INSERT INTO "metrics_webhook_attempt" VALUES(1,1,1,'2026-11-17 10:30:12.549333',21,200,'SUCCEEDED',NULL,NULL);
INSERT INTO "metrics_webhook_attempt" VALUES(2,2,1,'2026-11-17 10:30:12.549333',21,500,'FAILED','answered 500',NULL);
INSERT INTO "metrics_webhook_attempt" VALUES(3,3,1,'2026-11-17 10:30:12.549333',15,500,'FAILED','answered 500',NULL);
INSERT INTO "metrics_webhook_attempt" VALUES(4,2,2,'2026-11-17 10:30:13.651733',13,500,'FAILED','answered 500',NULL);
CREATE TABLE metrics_webhook_delivery (
	id INTEGER NOT NULL, 
	webhook_id VARCHAR(64) NOT NULL, 
	task_id INTEGER NOT NULL, 
	group_hash CHAR(64) NOT NULL, 
	model_id VARCHAR(255) NOT NULL, 
	op_time VARCHAR(255) NOT NULL, 
	callback_url VARCHAR(512) NOT NULL, 
	subscription_ids JSON NOT NULL, 
	secret VARCHAR(2048), 
	signing_secret VARCHAR(2048), 
	retry_num INTEGER NOT NULL, 
	body TEXT NOT NULL, 
	event_time DATETIME NOT NULL, 
	status VARCHAR(16) NOT NULL, 
	attempts INTEGER DEFAULT '0' NOT NULL, 
	next_attempt_at DATETIME, 
	lease_owner VARCHAR(255), 
	leased_until DATETIME, 
	last_error VARCHAR(1000), 
	finished_at DATETIME, 
	created_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	updated_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	CONSTRAINT pk_metrics_webhook_delivery PRIMARY KEY (id), 
	CONSTRAINT uk_webhook_delivery_group UNIQUE (task_id, group_hash), 
	CONSTRAINT uk_webhook_delivery_id UNIQUE (webhook_id)
);
INSERT INTO "metrics_webhook_delivery" VALUES(1,'msg_f1b0b33568c546b085d46c4edee0df6a',1,'9a6a0fc5e804af4292b7484c9b3a2cc362707ceb20da7e77413f3c94313a32a4','MODEL-01','20260301','http://127.0.0.1:40517/ok','[1]','Header,Authorization,enc:v1:AQ2GTAXYE794q3KboTusV4GKvoEAfe2hJzR8jq8O5KydP_xJvE4fywXxuBJdcIhMOx83','enc:v1:_woSOLY_TcKCQdPLop2QxAJOQduH8qIGAP7PVvB1LutXvy1tCF6MEGb-wgws58CQZPp__mCEVAXPTv-gr9HrBUpu',3,'{"event":"KPI_UPDATED","modelId":"MODEL-01","opTime":"20260301","affectedKpiIds":["KD1001","KD1002","KC2001"],"timestamp":"2026-11-17T10:30:12+00:00"}','2026-11-17 10:30:12.515927','DELIVERED',1,NULL,NULL,NULL,NULL,'2026-11-17 10:30:12.646052','2026-11-17 10:30:12.526000','2026-11-17 10:30:12.658164');
INSERT INTO "metrics_webhook_delivery" VALUES(2,'msg_1e2d2a11b64c46c7865d07726e7e29ca',1,'ad4305e59eebd1f01a830e86d1ffc41d9f583d45308cb6cbd1bf8594fbbde5d6','MODEL-01','20260301','http://127.0.0.1:40517/fails','[2]','Query,token,enc:v1:ABgqBtIyt4vcJgelq1LER8jSgUpQ3Qkorv2_lZewxzbYn_0=','enc:v1:_woSOLY_TcKCQdPLop2QxAJOQduH8qIGAP7PVvB1LutXvy1tCF6MEGb-wgws58CQZPp__mCEVAXPTv-gr9HrBUpu',5,'{"event":"KPI_UPDATED","modelId":"MODEL-01","opTime":"20260301","affectedKpiIds":["KD1001","KD1002","KC2001"],"timestamp":"2026-11-17T10:30:12+00:00"}','2026-11-17 10:30:12.515927','PENDING',2,'2026-11-17 10:30:15.684051',NULL,NULL,'answered 500',NULL,'2026-11-17 10:30:12.526000','2026-11-17 10:30:13.685968');
INSERT INTO "metrics_webhook_delivery" VALUES(3,'msg_705cc4e26449442f9ccc027786bd075d',1,'dfd4b22610caf20a71bf0fe8ca5bef7e43820f83cb4a9ddacedef0e7220615c3','MODEL-01','20260301','http://127.0.0.1:40517/dead','[3]','Body,json,enc:v1:JVhSOwTbygK21v9BObkdhfqb8GSqlTWohDTkGtDa5UPwvTaM_JI0vumWjLA9G_0=','enc:v1:_woSOLY_TcKCQdPLop2QxAJOQduH8qIGAP7PVvB1LutXvy1tCF6MEGb-wgws58CQZPp__mCEVAXPTv-gr9HrBUpu',0,'{"event":"KPI_UPDATED","modelId":"MODEL-01","opTime":"20260301","affectedKpiIds":["KD1001","KD1002","KC2001"],"timestamp":"2026-11-17T10:30:12+00:00"}','2026-11-17 10:30:12.515927','DEAD',1,NULL,NULL,NULL,'answered 500','2026-11-17 10:30:12.653631','2026-11-17 10:30:12.526000','2026-11-17 10:30:12.678935');
CREATE TABLE metrics_webhook_subscription (
	id INTEGER NOT NULL, 
	kpi_id VARCHAR(64) NOT NULL, 
	callback_url VARCHAR(512) NOT NULL, 
	secret VARCHAR(2048), 
	retry_num INTEGER DEFAULT '3' NOT NULL, 
	status VARCHAR(16) DEFAULT '1' NOT NULL, 
	team_name VARCHAR(64), 
	user_id VARCHAR(64), 
	created_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, signing_secret VARCHAR(2048), disabled_reason VARCHAR(255), 
	CONSTRAINT pk_metrics_webhook_subscription PRIMARY KEY (id)
);
INSERT INTO "metrics_webhook_subscription" VALUES(1,'KD1001','http://127.0.0.1:40517/ok','Header,Authorization,enc:v1:AQ2GTAXYE794q3KboTusV4GKvoEAfe2hJzR8jq8O5KydP_xJvE4fywXxuBJdcIhMOx83',3,'1','demo','u1','2026-11-17 10:30:11.862000','enc:v1:_woSOLY_TcKCQdPLop2QxAJOQduH8qIGAP7PVvB1LutXvy1tCF6MEGb-wgws58CQZPp__mCEVAXPTv-gr9HrBUpu',NULL);
INSERT INTO "metrics_webhook_subscription" VALUES(2,'KD1001','http://127.0.0.1:40517/fails','Query,token,enc:v1:ABgqBtIyt4vcJgelq1LER8jSgUpQ3Qkorv2_lZewxzbYn_0=',5,'1','demo','u1','2026-11-17 10:30:11.931000','enc:v1:_woSOLY_TcKCQdPLop2QxAJOQduH8qIGAP7PVvB1LutXvy1tCF6MEGb-wgws58CQZPp__mCEVAXPTv-gr9HrBUpu',NULL);
INSERT INTO "metrics_webhook_subscription" VALUES(3,'KD1001','http://127.0.0.1:40517/dead','Body,json,enc:v1:JVhSOwTbygK21v9BObkdhfqb8GSqlTWohDTkGtDa5UPwvTaM_JI0vumWjLA9G_0=',0,'1','demo','u1','2026-11-17 10:30:11.962000','enc:v1:_woSOLY_TcKCQdPLop2QxAJOQduH8qIGAP7PVvB1LutXvy1tCF6MEGb-wgws58CQZPp__mCEVAXPTv-gr9HrBUpu',NULL);
CREATE TABLE ol_async_batch (
	id INTEGER NOT NULL, 
	batch_no VARCHAR(64) NOT NULL, 
	task_type VARCHAR(32) NOT NULL, 
	tenant_id BIGINT NOT NULL, 
	model_fingerprint VARCHAR(256) NOT NULL, 
	worker_id VARCHAR(64) NOT NULL, 
	planned_size INTEGER NOT NULL, 
	success_count INTEGER DEFAULT '0' NOT NULL, 
	failed_count INTEGER DEFAULT '0' NOT NULL, 
	started_at DATETIME NOT NULL, 
	finished_at DATETIME, 
	status VARCHAR(16) NOT NULL, 
	created_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	CONSTRAINT pk_ol_async_batch PRIMARY KEY (id), 
	CONSTRAINT uq_batch_no UNIQUE (batch_no)
);
CREATE TABLE ol_async_task (
	id INTEGER NOT NULL, 
	task_type VARCHAR(32) NOT NULL, 
	tenant_id BIGINT NOT NULL, 
	tenant_code VARCHAR(64) NOT NULL, 
	resource_type VARCHAR(32) NOT NULL, 
	resource_id VARCHAR(128) NOT NULL, 
	content_hash CHAR(64) NOT NULL, 
	model_fingerprint VARCHAR(256) NOT NULL, 
	status VARCHAR(16) NOT NULL, 
	priority INTEGER DEFAULT '100' NOT NULL, 
	retry_count INTEGER DEFAULT '0' NOT NULL, 
	max_retry INTEGER DEFAULT '5' NOT NULL, 
	next_run_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	claim_token VARCHAR(64), 
	claim_until DATETIME, 
	last_error VARCHAR(1024), 
	created_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	updated_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	CONSTRAINT pk_ol_async_task PRIMARY KEY (id), 
	CONSTRAINT uq_task_dedup UNIQUE (task_type, tenant_id, resource_type, resource_id, model_fingerprint, content_hash)
);
CREATE TABLE ol_async_task_attempt (
	id INTEGER NOT NULL, 
	task_id BIGINT NOT NULL, 
	attempt_no INTEGER NOT NULL, 
	worker_id VARCHAR(64) NOT NULL, 
	started_at DATETIME NOT NULL, 
	finished_at DATETIME, 
	status VARCHAR(16) NOT NULL, 
	batch_no VARCHAR(64), 
	input_size INTEGER, 
	latency_ms BIGINT, 
	error_type VARCHAR(128), 
	error_message VARCHAR(1024), 
	created_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	CONSTRAINT pk_ol_async_task_attempt PRIMARY KEY (id), 
	CONSTRAINT fk_attempt_task FOREIGN KEY(task_id) REFERENCES ol_async_task (id)
);
CREATE TABLE orders (op_time TEXT, region TEXT, amount REAL);
INSERT INTO "orders" VALUES('20260301','N',5.0);
INSERT INTO "orders" VALUES('20260301','S',7.0);
CREATE TABLE reg_expr_field_dict (
	id INTEGER NOT NULL, 
	field_key VARCHAR(64) NOT NULL, 
	display_name VARCHAR(128), 
	description VARCHAR(512), 
	data_type_code VARCHAR(32) NOT NULL, 
	cardinality_code VARCHAR(32), 
	default_path VARCHAR(255), 
	is_active BOOLEAN DEFAULT '1' NOT NULL, 
	created_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	updated_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	CONSTRAINT pk_reg_expr_field_dict PRIMARY KEY (id), 
	CONSTRAINT uk_expr_field_key UNIQUE (field_key)
);
CREATE TABLE reg_prov_api_param_map (
	id INTEGER NOT NULL, 
	provenance_code VARCHAR(64) NOT NULL, 
	endpoint_name VARCHAR(64), 
	endpoint_scope VARCHAR(64) GENERATED ALWAYS AS (COALESCE(endpoint_name, '')) STORED, 
	operation_type VARCHAR(32) DEFAULT 'ALL' NOT NULL, 
	effective_from DATETIME NOT NULL, 
	effective_to DATETIME, 
	lifecycle_status_code VARCHAR(32) DEFAULT 'ACTIVE' NOT NULL, 
	std_key VARCHAR(64) NOT NULL, 
	provider_param_name VARCHAR(128) NOT NULL, 
	location_code VARCHAR(32) NOT NULL, 
	default_value VARCHAR(512), 
	is_required BOOLEAN DEFAULT '0' NOT NULL, 
	transform_code VARCHAR(64), 
	expr_template TEXT, 
	created_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	updated_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	CONSTRAINT pk_reg_prov_api_param_map PRIMARY KEY (id), 
	CONSTRAINT uk_api_param_map UNIQUE (provenance_code, endpoint_scope, operation_type, std_key, effective_from)
);
CREATE TABLE reg_prov_batching_cfg (
	id INTEGER NOT NULL, 
	provenance_code VARCHAR(64) NOT NULL, 
	endpoint_name VARCHAR(64), 
	endpoint_scope VARCHAR(64) GENERATED ALWAYS AS (COALESCE(endpoint_name, '')) STORED, 
	operation_type VARCHAR(32) DEFAULT 'ALL' NOT NULL, 
	effective_from DATETIME NOT NULL, 
	effective_to DATETIME, 
	lifecycle_status_code VARCHAR(32) DEFAULT 'ACTIVE' NOT NULL, 
	detail_fetch_batch_size INTEGER, 
	ids_param_name VARCHAR(64), 
	ids_join_delimiter VARCHAR(16), 
	max_ids_per_request INTEGER, 
	created_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	updated_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	CONSTRAINT pk_reg_prov_batching_cfg PRIMARY KEY (id), 
	CONSTRAINT uk_batching_cfg UNIQUE (provenance_code, endpoint_scope, operation_type, effective_from)
);
CREATE TABLE reg_prov_credential (
	id INTEGER NOT NULL, 
	provenance_code VARCHAR(64) NOT NULL, 
	endpoint_name VARCHAR(64), 
	endpoint_scope VARCHAR(64) GENERATED ALWAYS AS (COALESCE(endpoint_name, '')) STORED, 
	operation_type VARCHAR(32) DEFAULT 'ALL' NOT NULL, 
	effective_from DATETIME NOT NULL, 
	effective_to DATETIME, 
	lifecycle_status_code VARCHAR(32) DEFAULT 'ACTIVE' NOT NULL, 
	credential_alias VARCHAR(64) NOT NULL, 
	auth_type_code VARCHAR(32) NOT NULL, 
	location_code VARCHAR(32), 
	field_name VARCHAR(64), 
	secret_ref VARCHAR(512), 
	client_id_ref VARCHAR(512), 
	token_url VARCHAR(512), 
	oauth_scope VARCHAR(255), 
	priority INTEGER DEFAULT '100' NOT NULL, 
	created_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	updated_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	CONSTRAINT pk_reg_prov_credential PRIMARY KEY (id), 
	CONSTRAINT uk_credential UNIQUE (provenance_code, endpoint_scope, operation_type, credential_alias, effective_from)
);
CREATE TABLE reg_prov_endpoint_def (
	id INTEGER NOT NULL, 
	provenance_code VARCHAR(64) NOT NULL, 
	endpoint_name VARCHAR(64) NOT NULL, 
	operation_type VARCHAR(32) DEFAULT 'ALL' NOT NULL, 
	effective_from DATETIME NOT NULL, 
	effective_to DATETIME, 
	lifecycle_status_code VARCHAR(32) DEFAULT 'ACTIVE' NOT NULL, 
	role VARCHAR(32) NOT NULL, 
	http_method VARCHAR(16) NOT NULL, 
	path_template VARCHAR(512) NOT NULL, 
	default_query_params JSON, 
	default_body_payload JSON, 
	request_content_type VARCHAR(64), 
	items_path VARCHAR(255), 
	id_path VARCHAR(255), 
	updated_at_path VARCHAR(255), 
	has_more_path VARCHAR(255), 
	total_path VARCHAR(255), 
	two_phase_enabled BOOLEAN DEFAULT '0' NOT NULL, 
	linked_endpoint_name VARCHAR(64), 
	permit_cost INTEGER DEFAULT '1' NOT NULL, 
	auth_required BOOLEAN DEFAULT '0' NOT NULL, 
	created_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	updated_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	CONSTRAINT pk_reg_prov_endpoint_def PRIMARY KEY (id), 
	CONSTRAINT uk_endpoint_def UNIQUE (provenance_code, endpoint_name, operation_type, effective_from)
);
CREATE TABLE reg_prov_expr_capability (
	id INTEGER NOT NULL, 
	provenance_code VARCHAR(64) NOT NULL, 
	endpoint_name VARCHAR(64), 
	endpoint_scope VARCHAR(64) GENERATED ALWAYS AS (COALESCE(endpoint_name, '')) STORED, 
	operation_type VARCHAR(32) DEFAULT 'ALL' NOT NULL, 
	effective_from DATETIME NOT NULL, 
	effective_to DATETIME, 
	lifecycle_status_code VARCHAR(32) DEFAULT 'ACTIVE' NOT NULL, 
	field_key VARCHAR(64) NOT NULL, 
	allowed_ops_json JSON, 
	allowed_functions_json JSON, 
	limits_json JSON, 
	created_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	updated_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	CONSTRAINT pk_reg_prov_expr_capability PRIMARY KEY (id), 
	CONSTRAINT uk_expr_capability UNIQUE (provenance_code, endpoint_scope, operation_type, field_key, effective_from)
);
CREATE TABLE reg_prov_expr_render_rule (
	id INTEGER NOT NULL, 
	provenance_code VARCHAR(64) NOT NULL, 
	endpoint_name VARCHAR(64), 
	endpoint_scope VARCHAR(64) GENERATED ALWAYS AS (COALESCE(endpoint_name, '')) STORED, 
	operation_type VARCHAR(32) DEFAULT 'ALL' NOT NULL, 
	effective_from DATETIME NOT NULL, 
	effective_to DATETIME, 
	lifecycle_status_code VARCHAR(32) DEFAULT 'ACTIVE' NOT NULL, 
	field_key VARCHAR(64) NOT NULL, 
	op_code VARCHAR(32) NOT NULL, 
	emit_type_code VARCHAR(32), 
	template TEXT, 
	item_template TEXT, 
	joiner VARCHAR(32), 
	null_policy_code VARCHAR(32), 
	time_format VARCHAR(64), 
	params_json JSON, 
	created_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	updated_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	CONSTRAINT pk_reg_prov_expr_render_rule PRIMARY KEY (id), 
	CONSTRAINT uk_expr_render_rule UNIQUE (provenance_code, endpoint_scope, operation_type, field_key, op_code, effective_from)
);
CREATE TABLE reg_prov_http_cfg (
	id INTEGER NOT NULL, 
	provenance_code VARCHAR(64) NOT NULL, 
	endpoint_name VARCHAR(64), 
	endpoint_scope VARCHAR(64) GENERATED ALWAYS AS (COALESCE(endpoint_name, '')) STORED, 
	operation_type VARCHAR(32) DEFAULT 'ALL' NOT NULL, 
	effective_from DATETIME NOT NULL, 
	effective_to DATETIME, 
	lifecycle_status_code VARCHAR(32) DEFAULT 'ACTIVE' NOT NULL, 
	base_url_override VARCHAR(512), 
	default_headers_json JSON, 
	default_query_json JSON, 
	timeout_connect_millis INTEGER, 
	timeout_read_millis INTEGER, 
	timeout_total_millis INTEGER, 
	tls_verify_enabled BOOLEAN DEFAULT '1' NOT NULL, 
	proxy_url_value VARCHAR(512), 
	accept_compress_enabled BOOLEAN DEFAULT '1' NOT NULL, 
	redirect_enabled BOOLEAN DEFAULT '0' NOT NULL, 
	plain_http_allowed BOOLEAN DEFAULT '0' NOT NULL, 
	signing_hook VARCHAR(64), 
	retry_after_policy_code VARCHAR(32), 
	retry_after_cap_millis INTEGER, 
	created_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	updated_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	CONSTRAINT pk_reg_prov_http_cfg PRIMARY KEY (id), 
	CONSTRAINT uk_http_cfg UNIQUE (provenance_code, endpoint_scope, operation_type, effective_from)
);
CREATE TABLE reg_prov_pagination_cfg (
	id INTEGER NOT NULL, 
	provenance_code VARCHAR(64) NOT NULL, 
	endpoint_name VARCHAR(64), 
	endpoint_scope VARCHAR(64) GENERATED ALWAYS AS (COALESCE(endpoint_name, '')) STORED, 
	operation_type VARCHAR(32) DEFAULT 'ALL' NOT NULL, 
	effective_from DATETIME NOT NULL, 
	effective_to DATETIME, 
	lifecycle_status_code VARCHAR(32) DEFAULT 'ACTIVE' NOT NULL, 
	pagination_mode_code VARCHAR(32) NOT NULL, 
	page_size_value INTEGER, 
	max_pages_per_execution INTEGER, 
	page_number_param_name VARCHAR(64), 
	page_size_param_name VARCHAR(64), 
	offset_param_name VARCHAR(64), 
	limit_param_name VARCHAR(64), 
	cursor_param_name VARCHAR(64), 
	initial_cursor_value VARCHAR(255), 
	next_token_path VARCHAR(255), 
	next_url_path VARCHAR(255), 
	has_more_path VARCHAR(255), 
	total_path VARCHAR(255), 
	base1 BOOLEAN DEFAULT '1' NOT NULL, 
	sort_field_param_name VARCHAR(64), 
	sort_field_value VARCHAR(64), 
	sort_direction_param_name VARCHAR(64), 
	sort_direction_value VARCHAR(16), 
	created_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	updated_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	CONSTRAINT pk_reg_prov_pagination_cfg PRIMARY KEY (id), 
	CONSTRAINT uk_pagination_cfg UNIQUE (provenance_code, endpoint_scope, operation_type, effective_from)
);
CREATE TABLE reg_prov_rate_limit_cfg (
	id INTEGER NOT NULL, 
	provenance_code VARCHAR(64) NOT NULL, 
	endpoint_name VARCHAR(64), 
	endpoint_scope VARCHAR(64) GENERATED ALWAYS AS (COALESCE(endpoint_name, '')) STORED, 
	operation_type VARCHAR(32) DEFAULT 'ALL' NOT NULL, 
	effective_from DATETIME NOT NULL, 
	effective_to DATETIME, 
	lifecycle_status_code VARCHAR(32) DEFAULT 'ACTIVE' NOT NULL, 
	refill_rate_per_sec DOUBLE, 
	burst_capacity INTEGER, 
	warmup_sec INTEGER, 
	quota_hourly INTEGER, 
	quota_daily INTEGER, 
	max_concurrent_requests INTEGER, 
	per_credential_qps_limit DOUBLE, 
	demote_rate DOUBLE, 
	min_rate_per_sec DOUBLE, 
	quota_shared_across_endpoints BOOLEAN DEFAULT '0' NOT NULL, 
	header_adaptive_enabled BOOLEAN DEFAULT '1' NOT NULL, 
	retry_after_respect BOOLEAN DEFAULT '1' NOT NULL, 
	created_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	updated_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	CONSTRAINT pk_reg_prov_rate_limit_cfg PRIMARY KEY (id), 
	CONSTRAINT uk_rate_limit_cfg UNIQUE (provenance_code, endpoint_scope, operation_type, effective_from)
);
CREATE TABLE reg_prov_retry_cfg (
	id INTEGER NOT NULL, 
	provenance_code VARCHAR(64) NOT NULL, 
	endpoint_name VARCHAR(64), 
	endpoint_scope VARCHAR(64) GENERATED ALWAYS AS (COALESCE(endpoint_name, '')) STORED, 
	operation_type VARCHAR(32) DEFAULT 'ALL' NOT NULL, 
	effective_from DATETIME NOT NULL, 
	effective_to DATETIME, 
	lifecycle_status_code VARCHAR(32) DEFAULT 'ACTIVE' NOT NULL, 
	max_retry_times INTEGER, 
	backoff_policy_type_code VARCHAR(32), 
	initial_delay_millis INTEGER, 
	max_delay_millis INTEGER, 
	exp_multiplier_value DOUBLE, 
	jitter_factor_ratio DOUBLE, 
	retry_http_status_json JSON, 
	giveup_http_status_json JSON, 
	retry_on_network_error BOOLEAN DEFAULT '1' NOT NULL, 
	circuit_break_threshold INTEGER, 
	circuit_cooldown_millis INTEGER, 
	created_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	updated_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	CONSTRAINT pk_reg_prov_retry_cfg PRIMARY KEY (id), 
	CONSTRAINT uk_retry_cfg UNIQUE (provenance_code, endpoint_scope, operation_type, effective_from)
);
CREATE TABLE reg_prov_window_offset_cfg (
	id INTEGER NOT NULL, 
	provenance_code VARCHAR(64) NOT NULL, 
	endpoint_name VARCHAR(64), 
	endpoint_scope VARCHAR(64) GENERATED ALWAYS AS (COALESCE(endpoint_name, '')) STORED, 
	operation_type VARCHAR(32) DEFAULT 'ALL' NOT NULL, 
	effective_from DATETIME NOT NULL, 
	effective_to DATETIME, 
	lifecycle_status_code VARCHAR(32) DEFAULT 'ACTIVE' NOT NULL, 
	window_mode_code VARCHAR(32) NOT NULL, 
	window_size_value INTEGER, 
	window_size_unit_code VARCHAR(32), 
	min_window_size_value INTEGER, 
	min_window_size_unit_code VARCHAR(32), 
	calendar_align_to VARCHAR(32), 
	lookback_value INTEGER, 
	lookback_unit_code VARCHAR(32), 
	overlap_value INTEGER, 
	overlap_unit_code VARCHAR(32), 
	watermark_lag_seconds INTEGER, 
	offset_type_code VARCHAR(32), 
	offset_field_key VARCHAR(64), 
	offset_date_format VARCHAR(64), 
	max_ids_per_window INTEGER, 
	max_window_span_seconds INTEGER, 
	supports_updated_since BOOLEAN DEFAULT '0' NOT NULL, 
	created_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	updated_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	CONSTRAINT pk_reg_prov_window_offset_cfg PRIMARY KEY (id), 
	CONSTRAINT uk_window_offset_cfg UNIQUE (provenance_code, endpoint_scope, operation_type, effective_from)
);
CREATE TABLE reg_provenance (
	id INTEGER NOT NULL, 
	provenance_code VARCHAR(64) NOT NULL, 
	provenance_name VARCHAR(128) NOT NULL, 
	base_url_default VARCHAR(512), 
	timezone_default VARCHAR(64) DEFAULT 'UTC' NOT NULL, 
	docs_url VARCHAR(512), 
	is_active BOOLEAN DEFAULT '1' NOT NULL, 
	lifecycle_status_code VARCHAR(32) DEFAULT 'ACTIVE' NOT NULL, 
	created_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	updated_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	CONSTRAINT pk_reg_provenance PRIMARY KEY (id), 
	CONSTRAINT uk_provenance_code UNIQUE (provenance_code)
);
CREATE TABLE sys_dict_item (
	id INTEGER NOT NULL, 
	type_code VARCHAR(64) NOT NULL, 
	item_code VARCHAR(64) NOT NULL, 
	item_name VARCHAR(128) NOT NULL, 
	description VARCHAR(512), 
	display_order INTEGER DEFAULT '100' NOT NULL, 
	is_default BOOLEAN DEFAULT '0' NOT NULL, 
	is_active BOOLEAN DEFAULT '1' NOT NULL, 
	created_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	updated_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	CONSTRAINT pk_sys_dict_item PRIMARY KEY (id), 
	CONSTRAINT uk_dict_item UNIQUE (type_code, item_code)
);
CREATE TABLE sys_dict_item_alias (
	id INTEGER NOT NULL, 
	type_code VARCHAR(64) NOT NULL, 
	item_code VARCHAR(64) NOT NULL, 
	source_system VARCHAR(64) NOT NULL, 
	external_code VARCHAR(128) NOT NULL, 
	external_label VARCHAR(255), 
	created_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	updated_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	CONSTRAINT pk_sys_dict_item_alias PRIMARY KEY (id), 
	CONSTRAINT uk_dict_alias UNIQUE (type_code, source_system, external_code)
);
CREATE TABLE sys_dict_type (
	id INTEGER NOT NULL, 
	type_code VARCHAR(64) NOT NULL, 
	type_name VARCHAR(128) NOT NULL, 
	description VARCHAR(512), 
	is_active BOOLEAN DEFAULT '1' NOT NULL, 
	created_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	updated_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	CONSTRAINT pk_sys_dict_type PRIMARY KEY (id), 
	CONSTRAINT uk_dict_type UNIQUE (type_code)
);
CREATE TABLE tenants (
	tenant_id BIGINT NOT NULL, 
	tenant_code VARCHAR(64) NOT NULL, 
	tenant_name VARCHAR(128) NOT NULL, 
	created_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	updated_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	CONSTRAINT pk_tenants PRIMARY KEY (tenant_id), 
	CONSTRAINT uk_tenants_tenant_code UNIQUE (tenant_code)
);
INSERT INTO "tenants" VALUES(1,'demo','Demo','2026-11-17 10:29:55.484000','2026-11-17 10:29:55.484000');
INSERT INTO "tenants" VALUES(7,'acme','Acme','2026-11-17 10:30:05.645000','2026-11-17 10:30:05.645000');
CREATE TABLE used_assertions (
	assertion_hash CHAR(64) NOT NULL, 
	expires_at DATETIME NOT NULL, 
	CONSTRAINT pk_used_assertions PRIMARY KEY (assertion_hash)
);
CREATE TABLE work (
	id INTEGER NOT NULL, 
	kind VARCHAR(64) NOT NULL, 
	payload JSON NOT NULL, 
	idempotent_key VARCHAR(255), 
	run_id CHAR(36) NOT NULL, 
	status VARCHAR(16) NOT NULL, 
	priority INTEGER DEFAULT '100' NOT NULL, 
	attempts INTEGER DEFAULT '0' NOT NULL, 
	lease_owner VARCHAR(255), 
	leased_until DATETIME, 
	heartbeat_at DATETIME, 
	pid INTEGER, 
	process_started BIGINT, 
	cancel_requested_at DATETIME, 
	result JSON, 
	error TEXT, 
	created_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	started_at DATETIME, 
	finished_at DATETIME, 
	updated_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	CONSTRAINT pk_work PRIMARY KEY (id), 
	CONSTRAINT uk_work_idem UNIQUE (idempotent_key), 
	CONSTRAINT uk_work_run UNIQUE (run_id)
);
INSERT INTO "work" VALUES(1,'model_run','{"model_id":"MODEL-01","op_time":"20260301"}',NULL,'dc87c9b4-4667-476c-980b-55b07201e8c5','SUCCEEDED',100,1,'vm:10910:485381',NULL,'2026-11-17 10:30:12.012826',12331,486927,NULL,'{"models/MODEL-01":{"computeCount":2,"storageCount":4,"missing tables":"none","task":1}}',NULL,'2026-11-17 10:30:11.997000','2026-11-17 10:30:12.055699','2026-11-17 10:30:12.624957','2026-11-17 10:30:12.663763');
INSERT INTO "work" VALUES(2,'model_run','{"model_id":"MODEL-02","op_time":"20260301"}',NULL,'89d797af-b1e5-4651-82bd-f076bc2a939f','FAILED',100,1,'vm:10910:485381',NULL,'2026-11-17 10:30:12.012826',12332,486929,NULL,'{}','dagster._core.definitions.events.Failure: no such table: absent','2026-11-17 10:30:11.997000','2026-11-17 10:30:12.082850','2026-11-17 10:30:12.613064','2026-11-17 10:30:12.623382');
INSERT INTO "work" VALUES(3,'arrival_report','{}','arrival_report:358982282','00c16e94-4ca7-4967-afc9-ca8d17871742','SUCCEEDED',200,1,'vm:10910:485381',NULL,'2026-11-17 10:30:12.572315',12365,486997,NULL,'{"report_waiting_arrivals":{"arrivals":1}}',NULL,'2026-11-17 10:30:12.555000','2026-11-17 10:30:12.757513','2026-11-17 10:30:13.249464','2026-11-17 10:30:13.250797');
INSERT INTO "work" VALUES(4,'arrival_report','{}','arrival_report RUNNING','275e6733-edb5-4c76-a8ee-39dd8836bf1e','RUNNING',100,1,'host:1:1','2026-11-17 10:30:37.592337','2026-11-17 10:30:17.592337',NULL,NULL,NULL,NULL,NULL,'2026-11-17 10:30:17.589000',NULL,NULL,'2026-11-17 10:30:17.594759');
INSERT INTO "work" VALUES(5,'arrival_report','{}','arrival_report QUEUED','107c35b4-16c6-409b-aff7-1febe0fc6faf','QUEUED',100,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'2026-11-17 10:30:17.595000',NULL,NULL,'2026-11-17 10:30:17.595000');
INSERT INTO "work" VALUES(6,'arrival_report','{}','arrival_report SUCCEEDED','ab1c40d4-b527-4840-a1a6-fb5e46825e71','SUCCEEDED',100,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'2026-11-17 10:30:17.596000',NULL,'2026-11-17 10:30:17.597505','2026-11-17 10:30:17.598361');
INSERT INTO "work" VALUES(7,'arrival_report','{}','arrival_report FAILED','06c96a15-b4a6-4245-a69d-e435826a8b46','FAILED',100,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'said by the version before','2026-11-17 10:30:17.599000',NULL,'2026-11-17 10:30:17.599815','2026-11-17 10:30:17.600155');
INSERT INTO "work" VALUES(8,'arrival_report','{}','arrival_report CANCELED','912f03d7-beba-453d-b0f7-e1746909ac61','CANCELED',100,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'2026-11-17 10:30:17.600000',NULL,'2026-11-17 10:30:17.601474','2026-11-17 10:30:17.601810');
INSERT INTO "work" VALUES(9,'lineage_apply','{}','lineage_apply RUNNING','596bf6a3-3d55-4031-bc5a-19e8154e7564','RUNNING',100,1,'host:1:1','2026-11-17 10:30:37.603017','2026-11-17 10:30:17.603017',NULL,NULL,NULL,NULL,NULL,'2026-11-17 10:30:17.602000',NULL,NULL,'2026-11-17 10:30:17.603753');
INSERT INTO "work" VALUES(10,'lineage_apply','{}','lineage_apply QUEUED','374d766a-1d5c-47b6-8468-40f5af7027fc','QUEUED',100,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'2026-11-17 10:30:17.604000',NULL,NULL,'2026-11-17 10:30:17.604000');
INSERT INTO "work" VALUES(11,'lineage_apply','{}','lineage_apply SUCCEEDED','8d713e4f-c75e-49c1-b81d-726f48ade234','SUCCEEDED',100,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'2026-11-17 10:30:17.605000',NULL,'2026-11-17 10:30:17.605898','2026-11-17 10:30:17.606191');
INSERT INTO "work" VALUES(12,'lineage_apply','{}','lineage_apply FAILED','08a50534-5ba7-43b4-9f14-bf83ee135f9c','FAILED',100,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'said by the version before','2026-11-17 10:30:17.606000',NULL,'2026-11-17 10:30:17.607588','2026-11-17 10:30:17.607942');
INSERT INTO "work" VALUES(13,'lineage_apply','{}','lineage_apply CANCELED','23fd0630-6899-435a-80e5-e32dde2d67fd','CANCELED',100,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'2026-11-17 10:30:17.608000',NULL,'2026-11-17 10:30:17.609146','2026-11-17 10:30:17.609474');
INSERT INTO "work" VALUES(14,'model_run','{"model_id":"MODEL-01","op_time":"20260301"}','model_run RUNNING','a96d3377-c176-4bc2-95b5-814edc705a9a','RUNNING',100,1,'host:1:1','2026-11-17 10:30:37.610673','2026-11-17 10:30:17.610673',NULL,NULL,NULL,NULL,NULL,'2026-11-17 10:30:17.610000',NULL,NULL,'2026-11-17 10:30:17.611250');
INSERT INTO "work" VALUES(15,'model_run','{"model_id":"MODEL-01","op_time":"20260301"}','model_run QUEUED','b1a478ad-81b5-46b8-9fbe-6084fee88dfd','QUEUED',100,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'2026-11-17 10:30:17.612000',NULL,NULL,'2026-11-17 10:30:17.612000');
INSERT INTO "work" VALUES(16,'model_run','{"model_id":"MODEL-01","op_time":"20260301"}','model_run SUCCEEDED','271d05b8-f13a-43aa-b685-38359441f58d','SUCCEEDED',100,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'2026-11-17 10:30:17.612000',NULL,'2026-11-17 10:30:17.613313','2026-11-17 10:30:17.613621');
INSERT INTO "work" VALUES(17,'model_run','{"model_id":"MODEL-01","op_time":"20260301"}','model_run FAILED','a4e63459-eb74-499e-999d-ba40073e0380','FAILED',100,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'said by the version before','2026-11-17 10:30:17.614000',NULL,'2026-11-17 10:30:17.614756','2026-11-17 10:30:17.615038');
INSERT INTO "work" VALUES(18,'model_run','{"model_id":"MODEL-01","op_time":"20260301"}','model_run CANCELED','9302ca06-7fa5-4a76-8c8c-2d1d41f9dbc4','CANCELED',100,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'2026-11-17 10:30:17.615000',NULL,'2026-11-17 10:30:17.616275','2026-11-17 10:30:17.616581');
INSERT INTO "work" VALUES(19,'selfcheck','{}','selfcheck RUNNING','a3c35543-e5e1-462d-a0b1-8260948bb205','RUNNING',100,1,'host:1:1','2026-11-17 10:30:37.617824','2026-11-17 10:30:17.617824',NULL,NULL,NULL,NULL,NULL,'2026-11-17 10:30:17.617000',NULL,NULL,'2026-11-17 10:30:17.618410');
INSERT INTO "work" VALUES(20,'selfcheck','{}','selfcheck QUEUED','154b6d60-6978-4229-83b6-3aa04d709b67','QUEUED',100,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'2026-11-17 10:30:17.619000',NULL,NULL,'2026-11-17 10:30:17.619000');
INSERT INTO "work" VALUES(21,'selfcheck','{}','selfcheck SUCCEEDED','c35c4bec-cba1-4320-a67c-59da01a72d8c','SUCCEEDED',100,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'2026-11-17 10:30:17.619000',NULL,'2026-11-17 10:30:17.620435','2026-11-17 10:30:17.620744');
INSERT INTO "work" VALUES(22,'selfcheck','{}','selfcheck FAILED','cd8e4b94-9a67-4175-a98e-c7055348b63a','FAILED',100,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'said by the version before','2026-11-17 10:30:17.621000',NULL,'2026-11-17 10:30:17.621933','2026-11-17 10:30:17.622213');
INSERT INTO "work" VALUES(23,'selfcheck','{}','selfcheck CANCELED','37297289-5a2d-4f22-a5d7-835e1c29b1c2','CANCELED',100,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'2026-11-17 10:30:17.622000',NULL,'2026-11-17 10:30:17.623346','2026-11-17 10:30:17.623646');
INSERT INTO "work" VALUES(24,'webhook_send','{}','webhook_send RUNNING','0f1c8e25-1c3d-428e-a397-62f4e4407f2b','RUNNING',100,1,'host:1:1','2026-11-17 10:30:37.624854','2026-11-17 10:30:17.624854',NULL,NULL,NULL,NULL,NULL,'2026-11-17 10:30:17.624000',NULL,NULL,'2026-11-17 10:30:17.625604');
INSERT INTO "work" VALUES(25,'webhook_send','{}','webhook_send QUEUED','c3d7ec37-3f00-4c15-848d-a3e48a7ebccf','QUEUED',100,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'2026-11-17 10:30:17.626000',NULL,NULL,'2026-11-17 10:30:17.626000');
INSERT INTO "work" VALUES(26,'webhook_send','{}','webhook_send SUCCEEDED','bf35bae1-14cd-45e9-9ce2-205287db40fd','SUCCEEDED',100,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'2026-11-17 10:30:17.627000',NULL,'2026-11-17 10:30:17.627957','2026-11-17 10:30:17.628653');
INSERT INTO "work" VALUES(27,'webhook_send','{}','webhook_send FAILED','686eebdd-2af9-4f0e-8e73-be8eb5a9641d','FAILED',100,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'said by the version before','2026-11-17 10:30:17.629000',NULL,'2026-11-17 10:30:17.630205','2026-11-17 10:30:17.630494');
INSERT INTO "work" VALUES(28,'webhook_send','{}','webhook_send CANCELED','9be4dbcd-6531-469b-ad05-fc9fec3caf72','CANCELED',100,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'2026-11-17 10:30:17.631000',NULL,'2026-11-17 10:30:17.631703','2026-11-17 10:30:17.631975');
CREATE TABLE work_definition_version (
	name VARCHAR(64) NOT NULL, 
	version BIGINT NOT NULL, 
	updated_at DATETIME DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')) NOT NULL, 
	CONSTRAINT pk_work_definition_version PRIMARY KEY (name)
);
INSERT INTO "work_definition_version" VALUES('models',4,'2026-11-17 10:30:11.358000');
CREATE TABLE work_runner (
	name VARCHAR(255) NOT NULL, 
	hostname VARCHAR(255) NOT NULL, 
	pid INTEGER NOT NULL, 
	process_started BIGINT NOT NULL, 
	slots INTEGER NOT NULL, 
	busy INTEGER DEFAULT '0' NOT NULL, 
	definitions CHAR(64), 
	load_error TEXT, 
	metrics TEXT, 
	started_at DATETIME NOT NULL, 
	heartbeat_at DATETIME NOT NULL, 
	stopped_at DATETIME, 
	CONSTRAINT pk_work_runner PRIMARY KEY (name)
);
INSERT INTO "work_runner" VALUES('vm:10910:485381','vm',10910,485381,8,0,'d62dbd8af8cfc9e1f910e2288ad47fa9dc03d31916af4ff395b876de4af4e2e7',NULL,'# HELP platform_runner_slots Runs that may execute at a time
# TYPE platform_runner_slots gauge
platform_runner_slots 8.0
# HELP platform_runner_busy Runs that execute now
# TYPE platform_runner_busy gauge
platform_runner_busy 0.0
# HELP platform_runner_start_seconds From the row of work to its process
# TYPE platform_runner_start_seconds histogram
platform_runner_start_seconds_bucket{le="0.025"} 0.0
platform_runner_start_seconds_bucket{le="0.05"} 1.0
platform_runner_start_seconds_bucket{le="0.1"} 1.0
platform_runner_start_seconds_bucket{le="0.2"} 2.0
platform_runner_start_seconds_bucket{le="0.5"} 3.0
platform_runner_start_seconds_bucket{le="1.0"} 3.0
platform_runner_start_seconds_bucket{le="2.0"} 3.0
platform_runner_start_seconds_bucket{le="5.0"} 3.0
platform_runner_start_seconds_bucket{le="15.0"} 3.0
platform_runner_start_seconds_bucket{le="60.0"} 3.0
platform_runner_start_seconds_bucket{le="300.0"} 3.0
platform_runner_start_seconds_bucket{le="+Inf"} 3.0
platform_runner_start_seconds_count 3.0
platform_runner_start_seconds_sum 0.466881
# HELP platform_runner_start_seconds_created From the row of work to its process
# TYPE platform_runner_start_seconds_created gauge
platform_runner_start_seconds_created 1.794911400622622e+09
# HELP platform_runner_finished_total Rows of work closed, by outcome
# TYPE platform_runner_finished_total counter
platform_runner_finished_total{status="SUCCEEDED"} 2.0
platform_runner_finished_total{status="FAILED"} 1.0
# HELP platform_runner_finished_created Rows of work closed, by outcome
# TYPE platform_runner_finished_created gauge
platform_runner_finished_created{status="SUCCEEDED"} 1.7949114127451925e+09
platform_runner_finished_created{status="FAILED"} 1.7949114127459807e+09
','2026-11-17 10:30:00.622508','2026-11-17 10:30:13.294118','2026-11-17 10:30:14.017921');
CREATE INDEX idx_api_keys_name ON api_keys (name);
CREATE INDEX idx_cursor_id ON ing_cursor (provenance_code, operation_code, normalized_numeric);
CREATE INDEX idx_cursor_sort_id ON ing_cursor (cursor_type_code, normalized_numeric);
CREATE INDEX idx_cursor_sort_time ON ing_cursor (cursor_type_code, normalized_instant);
CREATE INDEX idx_cursor_time ON ing_cursor (provenance_code, operation_code, normalized_instant);
CREATE INDEX idx_cur_evt_instant ON ing_cursor_event (provenance_code, operation_code, new_instant);
CREATE INDEX idx_cur_evt_lineage ON ing_cursor_event (schedule_instance_id, plan_id, slice_id, task_id, run_id);
CREATE INDEX idx_cur_evt_numeric ON ing_cursor_event (provenance_code, operation_code, new_numeric);
CREATE INDEX idx_cur_evt_timeline ON ing_cursor_event (provenance_code, operation_code, namespace_scope_code, namespace_key, created_at);
CREATE INDEX idx_plan_expr ON ing_plan (expr_proto_hash);
CREATE INDEX idx_plan_src_op_time ON ing_plan (provenance_code, operation_code, created_at);
CREATE INDEX idx_slice_prov_status ON ing_plan_slice (provenance_code, status_code);
CREATE INDEX idx_slice_status ON ing_plan_slice (plan_id, status_code);
CREATE INDEX idx_quarantine_batch ON ing_record_quarantine (run_id, batch_id);
CREATE INDEX idx_quarantine_status ON ing_record_quarantine (provenance_code, endpoint_name, status_code, created_at);
CREATE INDEX idx_sched_src ON ing_schedule_instance (scheduler_code, scheduler_job_id, scheduler_log_id);
CREATE INDEX idx_task_cred ON ing_task (credential_id);
CREATE INDEX idx_task_pick ON ing_task (status_code, priority, scheduled_at, provenance_code, operation_code);
CREATE INDEX idx_task_plan ON ing_task (plan_id, status_code);
CREATE INDEX idx_task_queue ON ing_task (status_code, leased_until, priority, scheduled_at, id);
CREATE INDEX idx_task_src_op ON ing_task (provenance_code, operation_code, status_code);
CREATE INDEX idx_run_prov_op_status ON ing_task_run (provenance_code, operation_code, status_code);
CREATE INDEX idx_run_task ON ing_task_run (task_id, status_code, created_at);
CREATE INDEX idx_batch_prov_op_status ON ing_task_run_batch (provenance_code, operation_code, status_code, committed_at);
CREATE INDEX idx_batch_status ON ing_task_run_batch (run_id, status_code);
CREATE INDEX idx_batch_time ON ing_task_run_batch (run_id, created_at);
CREATE INDEX idx_job_run_chain_id ON job_run (chain_id);
CREATE INDEX idx_job_run_job_id ON job_run (job_id);
CREATE INDEX idx_job_run_status ON job_run (status, created_at);
CREATE INDEX idx_dead_letter_created ON lineage_dead_letter (created_at);
CREATE INDEX idx_dead_letter_payload ON lineage_dead_letter (payload_hash);
CREATE INDEX idx_dead_letter_status ON lineage_dead_letter (status, created_at);
CREATE INDEX idx_le_created_at ON lineage_events (created_at DESC);
CREATE INDEX idx_le_graph_applied ON lineage_events (graph_applied_at, id);
CREATE INDEX idx_le_tenant_event_type_time ON lineage_events (tenant_id, _event_type, event_time DESC);
CREATE INDEX idx_le_tenant_job_time ON lineage_events (tenant_id, job_namespace, job_name, event_time DESC);
CREATE INDEX idx_le_tenant_run_time ON lineage_events (tenant_id, run_uuid, event_time DESC);
CREATE INDEX idx_le_tenant_time ON lineage_events (tenant_id, event_time DESC);
CREATE INDEX idx_etl_log_arrival ON metrics_etl_log (arrival_time);
CREATE INDEX idx_kpi_model ON metrics_kpi (model_id);
CREATE INDEX idx_kpi_value_model ON metrics_kpi_value (model_id, op_time);
CREATE INDEX idx_model_dependency_table ON metrics_model_dependency (dependency_table_name);
CREATE INDEX idx_task_log_batch ON metrics_task_log (model_id, op_time);
CREATE INDEX idx_task_log_status ON metrics_task_log (status, start_time);
CREATE INDEX idx_webhook_kpi ON metrics_webhook_subscription (kpi_id, status);
CREATE INDEX idx_batch_tenant_type_time ON ol_async_batch (tenant_id, task_type, created_at DESC);
CREATE INDEX idx_task_poll ON ol_async_task (status, next_run_at, priority, id);
CREATE INDEX idx_task_tenant ON ol_async_task (tenant_id, task_type, status, next_run_at);
CREATE INDEX idx_endpoint_role ON reg_prov_endpoint_def (provenance_code, role);
CREATE INDEX idx_dict_alias_item ON sys_dict_item_alias (type_code, item_code);
CREATE INDEX idx_used_assertions_expires_at ON used_assertions (expires_at);
CREATE INDEX idx_work_lease ON work (status, leased_until);
CREATE INDEX idx_work_queue ON work (status, priority, id);
CREATE INDEX idx_graph_edge_tenant_to ON graph_edge (tenant_id, to_node);
CREATE INDEX idx_attempt_batch ON ol_async_task_attempt (batch_no);
CREATE INDEX idx_attempt_task ON ol_async_task_attempt (task_id, attempt_no);
CREATE INDEX idx_sql_run_created ON lineage_sql_run (created_at);
CREATE INDEX idx_model_running_task ON metrics_model_running (task_id);
CREATE INDEX idx_webhook_delivery_due ON metrics_webhook_delivery (status, next_attempt_at);
CREATE INDEX idx_task_log_reported ON metrics_task_log (status, reported_at, end_time);
COMMIT;
